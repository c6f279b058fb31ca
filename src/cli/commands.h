// The subcommands of the program: each adds itself to the command line and, when it is chosen, runs and sets the exit
// code.
#pragma once

namespace CLI {
class App;
}

namespace cohort::cli {

void add_run_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
/// Below `bench`.
void add_bench_serve_command(CLI::App& bench, int& exit_code);
/// Below `bench`.
void add_bench_experts_command(CLI::App& bench, int& exit_code);
/// Where the time of steps goes.
void add_profile_command(CLI::App& app, int& exit_code);
/// Whether bits are the same in every way of running.
void add_parity_command(CLI::App& app, int& exit_code);
void add_convert_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_synth_command(CLI::App& app, int& exit_code);
void add_pack_command(CLI::App& app, int& exit_code);
void add_imatrix_command(CLI::App& app, int& exit_code);
void add_quantize_command(CLI::App& app, int& exit_code);
void add_perplexity_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace cohort::cli
