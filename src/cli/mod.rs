//! The command line: one file a verb. What scripts may rely on (words, exit codes, what goes to
//! stdout) is the same for every verb and is decided here.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind as ClapKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::error::{Error, Result};

mod bench;
mod close;
mod demo;
mod dump;
mod engine;
mod engines;
mod is_luks;
mod keyfile;
mod open;
mod plain;
pub mod serve;
mod status;
mod terminal;
pub mod unlock;
mod uuid;

/// The exit code of a verb that did its work.
pub(crate) const DONE: u8 = 0;

/// Opens what cryptsetup opens, without root, device-mapper or kernel crypto.
#[derive(Parser, Debug)]
#[command(
    name = "luks",
    version,
    max_term_width = 100,
    subcommand_required = true
)]
#[command(
    after_help = "Exit codes: 0 done, 1 wrong parameters, 2 no key slot opens, 3 out of \
memory, 4 wrong device or format, 5 exists already or busy.\n\n\
Example:\n  luks serve disk.img --socket /tmp/s --run 'nbdcopy \"$uri\" plain.img'"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// One variant a verb, with cryptsetup's action name for it as an alias; each `Args` has a `run`
/// that returns the exit code.
#[derive(Subcommand, Debug)]
enum Verb {
    #[command(visible_alias = "luksOpen")]
    Open(open::OpenArgs),
    #[command(visible_alias = "luksClose")]
    Close(close::CloseArgs),
    Status(status::StatusArgs),
    Serve(serve::ServeVerb),
    #[command(visible_alias = "luksDump")]
    Dump(dump::DumpArgs),
    #[command(visible_alias = "isLuks")]
    IsLuks(is_luks::IsLuksArgs),
    #[command(visible_alias = "luksUUID")]
    Uuid(uuid::UuidArgs),
    Bench(bench::BenchArgs),
    Engines(engines::EnginesArgs),
    Demo(demo::DemoArgs),
}

impl Verb {
    fn run(self) -> Result<u8> {
        match self {
            Self::Open(args) => args.run(),
            Self::Close(args) => args.run(),
            Self::Status(args) => args.run(),
            Self::Serve(args) => args.run(),
            Self::Dump(args) => args.run(),
            Self::IsLuks(args) => args.run(),
            Self::Uuid(args) => args.run(),
            Self::Bench(args) => args.run(),
            Self::Engines(args) => args.run(),
            Self::Demo(args) => args.run(),
        }
    }
}

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let result = match Cli::try_parse_from(args) {
        Ok(cli) => cli.verb.run(),
        Err(error) => answer_parser(&error),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            error.kind().exit_code()
        }
    }
}

/// Prints an error: at most three lines on stderr.
fn report(error: &Error) {
    // A closed stderr is no reason to end with another code.
    let _ = writeln!(io::stderr(), "luks: {error}");
}

/// Tells a person something that isn't an error, on stderr.
pub(crate) fn warn(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "luks: {text}");
}

/// Prints data on stdout. A reader that has gone away isn't an error: `luks dump x | head` ends
/// well.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::device("can't write to standard output").caused_by(e))
        }
        _ => Ok(()),
    }
}

/// Help and version go to stdout with 0; everything else that the parser says is a usage error of
/// ours: exit 1 (never the parser's own 2), and short.
fn answer_parser(error: &clap::Error) -> Result<u8> {
    match error.kind() {
        ClapKind::DisplayHelp | ClapKind::DisplayVersion => {
            return print(error.render().to_string().trim_end()).map(|()| DONE);
        }
        ClapKind::MissingSubcommand | ClapKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let verbs: Vec<_> = Cli::command()
                .get_subcommands()
                .map(|verb| verb.get_name().to_owned())
                .collect();
            return Err(Error::usage("no verb given").hint(format!("luks {}", verbs.join("|"))));
        }
        _ => {}
    }
    let text = error.render().to_string();
    let mut paragraphs = text
        .split("\n\n")
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = paragraphs.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let tip = paragraphs
        .find(|p| p.starts_with("tip: "))
        .map(|tip| tip["tip: ".len()..].to_owned());
    let usage = error.get(ContextKind::Usage).map(|usage| {
        let usage = usage.to_string();
        usage
            .trim_start_matches("Usage: ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    });
    let hint = match (tip, usage) {
        (Some(tip), _) => tip,
        (None, Some(usage)) => usage,
        (None, None) => "luks --help".to_owned(),
    };
    Err(Error::usage(what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> std::result::Result<Cli, clap::Error> {
        Cli::try_parse_from([&["luks"], args].concat())
    }

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_an_example_and_help_says_so() {
        for verb in Cli::command().get_subcommands() {
            let help = verb
                .get_after_help()
                .map(|h| h.to_string())
                .unwrap_or_default();
            assert!(help.contains("luks "), "{} has no example", verb.get_name());
            assert!(
                verb.get_about().is_some(),
                "{} says nothing of itself",
                verb.get_name()
            );
        }
    }

    #[test]
    fn usage_errors_are_exit_1_and_three_lines_at_most() {
        for args in [
            &[][..],
            &["frobnicate"],
            &["uuid"],
            &["uuid", "a", "b", "c"],
            &["uuid", "--no-such-flag", "x"],
            &["bench", "ciphers", "--key-size", "256"],
            &["uuid", "--partition", "zwei", "x"],
            &["uuid", "--partition", "1", "--image-offset", "512", "x"],
        ] {
            let error = answer_parser(&parse(args).expect_err("a usage error")).unwrap_err();
            assert_eq!(error.kind().exit_code(), 1, "{args:?}");
            let text = error.to_string();
            assert!(text.lines().count() <= 3, "{args:?}: {text}");
            assert!(!text.contains("error:"), "{text}");
        }
    }

    #[test]
    fn cryptsetups_action_names_are_aliases() {
        for (action, args) in [
            ("luksDump", &["x"][..]),
            ("isLuks", &["x"]),
            ("luksUUID", &["x"]),
        ] {
            assert!(parse(&[&[action], args].concat()).is_ok(), "{action}");
        }
    }
}
