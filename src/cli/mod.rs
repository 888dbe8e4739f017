//! The command line: one file a verb.

/// Runs the command line and returns its exit code.
pub fn main() -> std::process::ExitCode {
    todo!()
}
