//! The `luks` command. Everything it does lives in the library; this file only starts it.

fn main() -> std::process::ExitCode {
    nbdcrypt::cli::main()
}
