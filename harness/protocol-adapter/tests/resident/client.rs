//! The worker's side of the socket against residents that answer wrongly, or not at all.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Duration;

use cuda_engine::resident::{PATIENCE, Resident};
use cuda_engine::target::{Counters, OnTarget, Target, TargetError};
use cuda_engine::worker::Backend;

const HELLO: &str = r#"{"ok":true,"vocab_size":1024,"eos_token":-1,"mtp_armed":true,"draft_tokens":2,"ctx_size":4096,"load_epoch":77,"ident":"x","model_path":"m","mtp_head_path":"","stop_ids":[],"device":"cpu none"}"#;

/// A resident that has its replies from a script: one a request, whatever that says. Then it closes, or stays silent.
struct Scripted {
    folder: tempfile::TempDir,
    served: JoinHandle<Vec<String>>,
}

impl Scripted {
    fn new(replies: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let replies: Vec<String> = replies.iter().map(|reply| (*reply).to_owned()).collect();
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut heard = Vec::new();
            for reply in replies {
                let Some(request) = requests.next() else { break };
                heard.push(request.unwrap());
                (&stream).write_all(reply.as_bytes()).unwrap();
            }
            heard
        });
        Self { folder, served }
    }

    fn attach(&self, patience: Duration) -> Result<Resident, TargetError> {
        Resident::attach(&self.folder.path().join("socket"), patience)
    }

    /// What the client asked.
    fn heard(self) -> Vec<String> {
        self.served.join().unwrap()
    }
}

fn line(reply: &str) -> String {
    format!("{reply}\n")
}

/// A client that got its hello, and the script behind it.
fn attached(replies: &[&str]) -> (Scripted, Resident) {
    let hello = line(HELLO);
    let script: Vec<&str> = std::iter::once(hello.as_str()).chain(replies.iter().copied()).collect();
    let scripted = Scripted::new(&script);
    let resident = scripted.attach(PATIENCE).unwrap();
    (scripted, resident)
}

#[test]
fn a_reply_that_is_none_breaks_the_connection_for_good() {
    let cases = [
        ("noise\n", "cannot be read"),
        ("{\"token\":5}\n", "cannot be read"),
        ("{\"ok\":true}\n", "missing field `token`"),
        ("{\"ok\":true,\"token\":\"5\"}\n", "cannot be read"),
        ("[true]\n", "not a JSON object"),
        ("\n", "not a JSON object"),
        ("{\"ok\":true,\"tok", "cannot be read"),
        ("", "closed the connection at sync"),
    ];
    for (reply, why) in cases {
        let (_scripted, mut resident) = attached(&[reply]);
        let error = resident.sync(&[1]).unwrap_err();
        assert!(matches!(&error, TargetError::Resident { what, .. } if what.contains(why)), "{reply:?}: {error}");
        assert_eq!(resident.argmax(), None);
        assert!(matches!(resident.eval(5), Err(TargetError::Resident { .. })), "{reply:?}: broken for good");
        assert!(matches!(resident.sync(&[1]), Err(TargetError::Resident { .. })));
    }
}

#[test]
fn ids_without_their_logits_are_no_top() {
    let (_scripted, mut resident) = attached(&["{\"ok\":true,\"ids\":[1,2],\"logits\":[0.5]}\n"]);
    assert_eq!(resident.top_logits(8), []);
    let fault = resident.fault().unwrap_err().to_string();
    assert!(fault.contains("2 ids and 1 logits"), "{fault}");
}

/// engine-protocol-v1.md 10, "poisoning": a broken resident never reads as a fast phase.
#[test]
fn what_a_call_cannot_return_the_next_one_that_can_does() {
    let refusal = "{\"ok\":false,\"error\":\"no row\"}\n";
    type Ask = fn(&mut Resident);
    let asks: [(&str, Ask); 4] = [
        ("top_logits", |resident| assert_eq!(resident.top_logits(8), [])),
        ("argmax", |resident| assert_eq!(resident.argmax(), None)),
        ("spec_counters", |resident| assert_eq!(resident.counters(), Counters::default())),
        ("invalidate", Resident::invalidate),
    ];
    for (op, ask) in asks {
        let (scripted, mut resident) = attached(&[refusal, "{\"ok\":true,\"token\":7}\n"]);
        ask(&mut resident);
        assert_eq!(resident.top_logits(8), [], "nothing until it was heard of");
        let told = resident.eval(5).unwrap_err();
        assert!(matches!(&told, TargetError::Refused { op: of, why } if *of == op && why == "no row"), "{told}");
        assert_eq!(resident.eval(5).unwrap(), 7, "a refusal leaves the connection usable");
        drop(resident);
        assert_eq!(scripted.heard().len(), 3, "hello, {op}, the eval that was heard");
    }
}

#[test]
fn a_phase_over_a_broken_resident_is_a_fault_of_the_engine() {
    let (_scripted, resident) = attached(&["{\"ok\":true}\n", "{\"ok\":true,\"token\":7}\n"]);
    let mut backend = OnTarget::new(resident);
    backend.open().unwrap();
    assert_eq!(backend.prefill(&[1]).unwrap(), 7);
    let fault = backend.top_logits(8).unwrap_err().to_string();
    assert!(fault.starts_with("engine fault: resident engine ") && fault.contains("top_logits"), "{fault}");
    assert!(backend.open().is_err(), "nor does a fresh phase begin on it");
}

#[test]
fn the_frontier_costs_no_round_trip() {
    let (scripted, mut resident) = attached(&["{\"ok\":true,\"token\":7}\n", "{\"ok\":true,\"token\":9}\n"]);
    assert_eq!(resident.sync(&[1, 2]).unwrap(), 7);
    assert_eq!((resident.argmax(), resident.argmax()), (Some(7), Some(7)));
    assert_eq!(resident.eval(7).unwrap(), 9);
    assert_eq!(resident.argmax(), Some(9));
    drop(resident);
    let ops = [r#"{"op":"hello"}"#, r#"{"op":"sync","tokens":[1,2]}"#, r#"{"op":"eval","token":7}"#];
    assert_eq!(scripted.heard(), ops);
}

#[test]
fn silence_ends_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = Resident::attach(&socket, Duration::from_millis(20)).unwrap_err().to_string();
    assert!(error.contains("no reply to hello within 0.02 s"), "{error}");
}

#[test]
fn a_hello_that_is_refused_or_lacks_a_field_attaches_to_nothing() {
    let refused = Scripted::new(&["{\"ok\":false,\"error\":\"busy\"}\n"]).attach(PATIENCE).unwrap_err();
    assert!(matches!(&refused, TargetError::Refused { op: "hello", why } if why == "busy"), "{refused}");
    let lacking = line(&HELLO.replace("\"load_epoch\":77,", ""));
    let error = Scripted::new(&[&lacking]).attach(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("missing field `load_epoch`"), "{error}");
}
