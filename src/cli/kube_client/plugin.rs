//! The exec plugin of a kubeconfig's user: a command that prints credentials.
//!
//! The protocol is that of client-go's `plugin/pkg/client/auth/exec`. kube speaks it, too, but runs the
//! command three times for a client, waits for it without an end, and does not tell when a token ends.

use std::{
    io::{ErrorKind, IsTerminal as _},
    pin::pin,
    process::{Output, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{
    FutureExt as _,
    future::{FusedFuture as _, join},
};
use http::HeaderValue;
use jiff::{Timestamp, fmt::temporal::Pieces};
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use tidings_kube::text::short;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

/// A command that takes longer is killed, unless there is a terminal, where a person may be at it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The most bytes that are read of stdout, and of stderr.
const MAX_OUTPUT: u64 = 1 << 20;

/// The time to read the output after the command has ended: another process may still hold it open.
const LEFT_OPEN: Duration = Duration::from_secs(1);

/// The credentials that a plugin answered.
pub(super) struct Answer {
    /// Their kind, for messages.
    pub(super) what: &'static str,
    pub(super) expires: Option<Timestamp>,
    token: Option<String>,
    pair: Option<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The plugin of a user, where the user has no other credentials: kube takes those first.
pub(super) fn of(user: &AuthInfo) -> Option<&ExecConfig> {
    let basic = user.username.is_some() && user.password.is_some();
    let other =
        basic || user.auth_provider.is_some() || user.token.is_some() || user.token_file.is_some();
    user.exec.as_ref().filter(|_| !other)
}

/// Runs the plugin once.
pub(super) async fn run(plugin: &ExecConfig) -> Result<Answer, String> {
    let command = plugin.command.as_deref().filter(|command| !command.is_empty());
    let mut command = Command::new(command.ok_or("expected a command, found none")?);
    let terminal = std::io::stdin().is_terminal();
    let interactive = match plugin.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::IfAvailable) | None => terminal,
        Some(ExecInteractiveMode::Always) if !terminal => {
            return Err("expected a terminal for `interactiveMode: Always`, found none".to_owned());
        }
        Some(ExecInteractiveMode::Always) => true,
    };
    let mut asked = json!({
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": interactive},
    });
    if let Some(cluster) = &plugin.cluster {
        asked["spec"]["cluster"] = json!(cluster);
    }
    command.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", asked.to_string()).stdout(Stdio::piped());
    let ended = if interactive {
        output(&mut command, plugin).await
    } else {
        command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        timeout(ANSWER_WITHIN, output(&mut command, plugin)).await.unwrap_or_else(|_| {
            Err(format!("expected an answer within {} s, found none", ANSWER_WITHIN.as_secs()))
        })
    };
    let Output { status, stdout, stderr } = ended?;
    if !status.success() {
        let words = String::from_utf8_lossy(&stderr);
        let colon = if words.trim().is_empty() { "" } else { ": " };
        return Err(format!("expected success, found {status}{colon}{}", short(words.trim())));
    }
    read(&stdout, plugin.api_version.as_deref())
}

/// Runs a command until it ends. A process that it leaves behind with its stdout is not waited for.
async fn output(command: &mut Command, plugin: &ExecConfig) -> Result<Output, String> {
    let mut child =
        command.kill_on_drop(true).spawn().map_err(|error| not_started(&error, plugin))?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    // Of an interactive one there is no group.
    let group = KillOnDrop(group.filter(|_| child.stderr.is_some()));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let reading =
        join(drain(child.stdout.take(), &mut stdout), drain(child.stderr.take(), &mut stderr));
    let status = {
        let mut reading = pin!(reading.fuse());
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(|error| error.to_string())?,
                _ = &mut reading => {}
            }
        };
        if !reading.is_terminated() {
            let _ = timeout(LEFT_OPEN, reading).await;
        }
        status
    };
    group.spare();
    Ok(Output { status, stdout, stderr })
}

async fn drain(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(pipe) = pipe {
        // A pipe that breaks has nothing more.
        let _ = pipe.take(MAX_OUTPUT).read_to_end(into).await;
    }
}

/// Kills a process group on drop, unless it is spared.
struct KillOnDrop(Option<Pid>);

impl KillOnDrop {
    fn spare(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may have ended by now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn not_started(error: &std::io::Error, plugin: &ExecConfig) -> String {
    let hint = plugin.install_hint.as_ref().filter(|_| error.kind() == ErrorKind::NotFound);
    let hint = hint.map(|hint| format!(" ({})", short(hint.trim()))).unwrap_or_default();
    format!("expected a program that can be started, found {error}{hint}")
}

/// Reads JSON or YAML. The text holds credentials, so no error repeats any of it.
fn read(stdout: &[u8], api_version: Option<&str>) -> Result<Answer, String> {
    let failed = |expected: &str, found| Err(format!("expected {expected}, found {found}"));
    let Ok(answer) = serde_saphyr::from_slice::<ExecCredential>(stdout) else {
        return failed("an ExecCredential in JSON or YAML", "something else");
    };
    if let Some(asked) = api_version
        && answer.api_version.as_deref() != Some(asked)
    {
        return failed(&format!("an ExecCredential of {asked}"), "one of another version");
    }
    let Some(status) = answer.status else {
        return failed("an ExecCredential with a status", "none");
    };
    let expires = match status.expiration_timestamp.as_deref() {
        None | Some("") => None,
        Some(time) => match (time.parse::<Timestamp>(), Pieces::parse(time)) {
            (Ok(time), _) => Some(time),
            // The last days of the year 9999 are beyond a `Timestamp`.
            (Err(_), Ok(pieces)) if pieces.offset().is_some() => None,
            _ => return failed("an expirationTimestamp of RFC 3339", "something else"),
        },
    };
    let present = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = present(status.token);
    if token.as_deref().is_some_and(|token| !is_token(token)) {
        return failed("a token of one line", "other characters");
    }
    let pair = match (present(status.client_certificate_data), present(status.client_key_data)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => return failed("a client certificate with its key", "no key"),
        (None, Some(_)) => return failed("a client certificate with its key", "the key alone"),
        (None, None) => None,
    };
    let what = match (&token, &pair) {
        (None, None) => return failed("a token or a client certificate with its key", "neither"),
        (Some(_), None) => "a token",
        (None, Some(_)) => "a client certificate",
        (Some(_), Some(_)) => "a token and a client certificate",
    };
    Ok(Answer { what, expires, token, pair })
}

/// Whether this can be sent: kube panics where it cannot.
pub(super) fn is_token(token: &str) -> bool {
    HeaderValue::from_str(token).is_ok()
}

impl Answer {
    /// Puts the credentials in the plugin's place.
    pub(super) fn give(self, user: &mut AuthInfo) {
        user.exec = None;
        user.token = self.token.map(Into::into);
        if let Some((certificate, key)) = self.pair {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn answer(status: &str) -> Result<Answer, String> {
        let text = format!("apiVersion: {V1}\nkind: ExecCredential\nstatus: {status}\n");
        read(text.as_bytes(), Some(V1))
    }

    #[test]
    fn an_answer_replaces_the_plugin_and_keeps_the_rest_of_the_user() {
        let user = r#"{"as": "bob", "client-certificate": "a", "exec": {"command": "p"}}"#;
        let mut user: AuthInfo = serde_json::from_str(user).expect("a user");
        assert!(of(&user).is_some());
        let status = "{clientCertificateData: C, clientKeyData: K, token: T, expirationTimestamp: 2030-01-01T00:00:00Z}";
        let answer = answer(status).expect("an answer");
        assert_eq!(answer.what, "a token and a client certificate");
        assert_eq!(
            answer.expires.map(|ends| ends.to_string()).as_deref(),
            Some("2030-01-01T00:00:00Z")
        );
        answer.give(&mut user);
        let user = serde_json::to_value(&user).expect("JSON");
        let expected = json!({
            "as": "bob", "client-certificate": "a", "token": "T",
            "client-certificate-data": "Qw==", "client-key-data": "Sw==",
        });
        assert_eq!(user, expected);
    }

    #[test]
    fn credentials_without_an_end_that_can_be_reached_have_none() {
        for time in ["9999-12-31T23:59:59Z", "''"] {
            let answer = answer(&format!("{{token: T, expirationTimestamp: {time}}}"));
            assert_eq!(answer.map(|answer| answer.expires), Ok(None), "{time}");
        }
    }

    async fn of_script(script: &str) -> Result<Answer, String> {
        let plugin = json!({"command": "sh", "args": ["-c", script], "interactiveMode": "Never"});
        run(&serde_json::from_value(plugin).expect("a plugin")).await
    }

    #[tokio::test]
    async fn a_process_that_a_plugin_leaves_behind_is_not_waited_for() {
        let answer = of_script("sleep 60 & echo \"{status: {token: T}}\"; echo $! >&2").await;
        assert_eq!(answer.map(|answer| answer.what), Ok("a token"));
    }

    #[tokio::test]
    async fn a_plugin_that_fails_is_told_with_its_stderr_and_without_its_stdout() {
        let error = of_script("echo S3CRET; echo 'log\tin' >&2; exit 3").await.err();
        assert_eq!(error.as_deref(), Some("expected success, found exit status: 3: log in"));
        let error = of_script("yes S3CRET").await.err();
        assert!(error.is_some_and(|error| !error.contains("S3CRET")));
    }

    #[test]
    fn a_plugin_is_not_run_beside_a_token() {
        let user = r#"{"tokenFile": "t", "exec": {"command": "p"}}"#;
        assert!(of(&serde_json::from_str(user).expect("a user")).is_none());
    }

    #[test]
    fn an_answer_that_is_none_is_refused_without_its_text() {
        for (status, error) in [
            ("{token: ''}", "expected a token or a client certificate with its key, found neither"),
            (
                "{clientKeyData: S3CRET}",
                "expected a client certificate with its key, found the key alone",
            ),
            (
                "{clientCertificateData: S3CRET}",
                "expected a client certificate with its key, found no key",
            ),
            ("null", "expected an ExecCredential with a status, found none"),
            (
                "{expirationTimestamp: S3CRET}",
                "expected an expirationTimestamp of RFC 3339, found something else",
            ),
            (
                "{token: [S3CRET]}",
                "expected an ExecCredential in JSON or YAML, found something else",
            ),
        ] {
            assert_eq!(answer(status).err().as_deref(), Some(error), "{status}");
        }
        let other = read(b"{\"apiVersion\": \"v1\"}", Some(V1)).err();
        let error = format!("expected an ExecCredential of {V1}, found one of another version");
        assert_eq!(other, Some(error));
    }
}
