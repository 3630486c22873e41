//! The parent's end of a helper process: a line to its stdin, a line from its stdout.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    str::FromStr,
};

use crate::Result;

/// A helper. It ends when its stdin is closed, so none outlives the bench.
pub(crate) struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts this binary in another role.
    pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        Self::of(Command::new(std::env::current_exe()?).args(arguments))
    }

    /// Starts another program.
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("a helper has ended; its reason is above".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Asks for something and reads the answer.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String> {
        writeln!(self.stdin, "{request}")?;
        self.line()
    }

    /// The same for an answer that is a number.
    pub(crate) fn number<T: FromStr>(&mut self, request: &str) -> Result<T> {
        let answer = self.ask(request)?;
        answer.parse().map_err(|_| format!("{request:?} was answered {answer:?}").into())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Neither matters any more: it may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
