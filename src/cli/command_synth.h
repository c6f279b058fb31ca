#pragma once

namespace CLI {
class App;
}

namespace cohort::cli {

/// Adds `cohort synth`; when it is chosen, it runs and sets the exit code.
void add_synth_command(CLI::App& app, int& exit_code);

}  // namespace cohort::cli
