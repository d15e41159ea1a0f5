//! `slip connections`: what workers keep of their connections, by the PHP extension.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use slip_record::{KEPT_REASONS, KeptServer, TargetIssue, TargetSet, kept_connections};
use slip_report::{clean, clean_json, duration};

use crate::args::{ConnectionsFormatName, ConnectionsOptions};
use crate::failure::{self, Failure, of_issue};
use crate::record::target_of;

/// What was read of the workers.
#[derive(Debug, Default)]
struct Kept {
    /// Those that keep connections.
    workers: u64,
    /// And those that do not.
    others: u64,
    /// Of all workers together, in the order of `slipstream.keep`.
    servers: Vec<KeptServer>,
}

/// Prints what the workers have counted.
pub(crate) fn run(options: &ConnectionsOptions) -> Result<(), Failure> {
    let (target, _) = target_of(&options.target, None)?;
    let mut targets = TargetSet::find(target)?;
    let mut kept = Kept::default();
    for pid in targets.refresh().started {
        match kept_connections(pid) {
            Ok(Some(servers)) => kept.add(servers),
            Ok(None) => kept.others += 1,
            // A worker may end at any moment.
            Err(TargetIssue::NotFound) => {}
            Err(issue) => return Err(of_issue(pid, &issue)),
        }
    }
    if kept.workers == 0 {
        return Err(Failure::new(failure::NO_EVIDENCE, "no process keeps connections").hint(
            "the PHP extension does, for the servers that `slipstream.keep` names, from its first request on",
        ));
    }
    let text = match options.format {
        ConnectionsFormatName::Table => kept.table(),
        ConnectionsFormatName::Json => clean_json(&format!("{:#}\n", kept.json())).into_owned(),
    };
    crate::print(text.as_bytes())
}

impl Kept {
    fn add(&mut self, servers: Vec<KeptServer>) {
        self.workers += 1;
        for server in servers {
            match self.servers.iter_mut().find(|known| known.name == server.name) {
                Some(known) => known.add(&server),
                None => self.servers.push(server),
            }
        }
    }

    fn table(&self) -> String {
        let mut text = format!("{} workers keep connections", self.workers);
        if self.others > 0 {
            let _ = write!(text, ", {} do not", self.others);
        }
        text.push('\n');
        for server in &self.servers {
            let share = 100.0 * server.reused as f64 / server.asked.max(1) as f64;
            let _ = writeln!(
                text,
                "\n{}\n  asked for   {:>10}\n  used again  {:>10}  {share:.1} %, which has saved {}\n  parked      {:>10}  now",
                clean(&server.name),
                server.asked,
                server.reused,
                duration(server.saved_ns()),
                server.parked,
            );
            if server.replayed > 0 {
                let _ = writeln!(
                    text,
                    "  told again  {:>10}  the password or the database of a boot",
                    server.replayed
                );
            }
            for (reason, count) in refused(server) {
                let _ = writeln!(text, "  not kept    {count:>10}  {}", meaning(reason));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|server| {
                let reasons = refused(server).map(|(reason, count)| (reason.to_owned(), json!(count)));
                json!({
                    "server": server.name,
                    "asked": server.asked,
                    "reused": server.reused,
                    "connected": server.connected,
                    "reused_ns": server.reused_ns,
                    "connected_ns": server.connected_ns,
                    "saved_ns": server.saved_ns(),
                    "parked": server.parked,
                    "replayed": server.replayed,
                    "refused": reasons.collect::<Map<_, _>>(),
                })
            })
            .collect();
        json!({
            "schema": "slip.connections/1",
            "workers": self.workers,
            "workers_without": self.others,
            "servers": servers,
        })
    }
}

/// Reasons that came up, and how often.
fn refused(server: &KeptServer) -> impl Iterator<Item = (&'static str, u64)> {
    KEPT_REASONS.into_iter().zip(server.refused).filter(|(_, count)| *count > 0)
}

fn meaning(reason: &str) -> &'static str {
    match reason {
        "closed" => "the server had closed it",
        "unread" => "something was there that nobody had read",
        "half" => "half a command was written",
        "stays" => "a command had set what no reset undoes, or was a reset itself",
        "late" => "the server had not answered to the reset yet",
        "timeout" => "a read had timed out",
        "old" => "parked for longer than slipstream.keep_seconds",
        "full" => "as many as slipstream.keep_connections were parked",
        "unknown" => "the server does not know the reset: it is older than Redis 6.2 or memcached 1.5.19",
        "encrypted" => "TLS was begun on it, or is not as the extension knows it",
        "exported" => "the script had its socket",
        "forked" => "it was another process's",
        "replay" => "the server did not take the boot's password or database again",
        "options" => "its options of TLS were others, or not all of them are known",
        _ => "for another reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up() {
        let mut server = KeptServer {
            name: "redis://a\u{1b}:6379".to_owned(),
            asked: 10,
            reused: 9,
            replayed: 4,
            ..KeptServer::default()
        };
        server.refused[2] = 1;
        let mut kept = Kept { others: 1, ..Kept::default() };
        kept.add(vec![server.clone()]);
        kept.add(vec![server]);
        let text = kept.table();
        assert!(text.starts_with("2 workers keep connections, 1 do not\n\nredis://a\\x1b:6379\n"), "{text}");
        assert!(text.contains("90.0 %") && text.contains("2  half a command was written"), "{text}");
        assert!(text.contains("8  the password or the database"), "{text}");
        let json = kept.json();
        assert_eq!(
            (&json["servers"][0]["asked"], &json["servers"][0]["refused"]),
            (&json!(20), &json!({"half": 2}))
        );
    }

    #[test]
    fn each_reason_has_a_meaning() {
        assert!(KEPT_REASONS.iter().all(|reason| meaning(reason) != meaning("")));
    }
}
