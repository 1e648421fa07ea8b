//! The `squall` program: hands the arguments to the library and maps the outcome to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    squall::cli::main(std::env::args_os())
}
