// What order of work is fastest on this machine, measured and remembered.
#pragma once

namespace CLI {
class App;
}

namespace cohort::cli {

void add_tune_command(CLI::App& app, int& exit_code);

}  // namespace cohort::cli
