use std::fs;
use std::time::Duration;

use bench_core::engine::Engine;
use bench_core::fidelity::{Budget, ReplayRule, judge_timed, replay};
use bench_core::golden::author::record_case;
use bench_protocol::SpecConfig;
use bench_runner::{Interrupt, SessionError, WorkerSession};

use crate::worker::{follows, launch, with};

const PROMPT: [i64; 3] = [11, 12, 13];

/// Everything a session can be asked, once.
fn whole_session(session: &mut WorkerSession) -> Result<(), SessionError> {
    session.prefill(&PROMPT)?;
    session.close_phase()?;
    session.free_decode_begin(&PROMPT, Some(&SpecConfig::mtp(Some(2))))?;
    session.free_decode_run(8)?;
    session.close_phase()?;
    session.correctness_begin(&PROMPT)?;
    session.correctness_step(5)?;
    session.close_phase()?;
    Ok(())
}

/// A process that is gone, reaped too.
pub(crate) fn is_gone(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_err()
}

pub(crate) fn an_honest_worker_is_believed_and_ends_with_success() {
    let mut session = launch("").connect().unwrap();
    assert_eq!(session.prefill(&PROMPT).unwrap().value, follows(&PROMPT));
    session.close_phase().unwrap();
    whole_session(&mut session).unwrap();
    let pid = session.pid();
    session.finish().unwrap();
    assert!(is_gone(pid));
}

pub(crate) fn each_way_to_cheat_a_session_is_refused_by_its_name() {
    let table = [
        ("hello-version", "Protocol"),
        ("no-free-run", "CapabilityNotAdvertised"),
        ("no-mtp", "SpecModeNotRunnable"),
        ("wrong-depth", "SpecEchoDivergence"),
        ("forged-time", "Json"),
        ("nonce", "NonceMismatch"),
        ("id", "Protocol"),
        ("refuse", "Engine"),
        ("unreadable", "Engine"),
        ("late", "RunTimeout"),
        ("hang-hello", "RunTimeout"),
        ("short-logits", "Protocol"),
        ("no-token", "Protocol"),
        ("long-line", "RESPONSE-LINE-TOO-LONG"),
        ("stdout-flood", "WORKER-STDOUT-FLOOD"),
        ("stderr-flood", "WORKER-STDERR-FLOOD"),
        ("cut", "RunTimeout"),
        ("two-answers", "RESPONSE-BEFORE-REQUEST"),
        ("early", "RESPONSE-BEFORE-REQUEST"),
        ("short-run", "FreeRunConsistency"),
        ("wrong-lengths", "FreeRunConsistency"),
        ("more-work", "CompletedWorkMismatch"),
        ("not-drained", "AllocatorCacheNotDrained"),
    ];
    for (cheat, name) in table {
        let mut launch = launch(cheat);
        // Long where the worker writes megabytes, short where it writes nothing.
        let waits = name == "RunTimeout";
        let limit = Duration::from_millis(if waits { 300 } else { 60_000 });
        launch.deadlines.request = limit;
        if cheat == "hang-hello" {
            launch.deadlines.hello = limit;
        }
        let mut pid = None;
        let refused = launch.connect().and_then(|mut session| {
            pid = Some(session.pid());
            whole_session(&mut session)
        });
        let error = refused.unwrap_err();
        assert_eq!(error.name(), name, "{cheat}: {error}");
        assert!(pid.is_none_or(is_gone), "{cheat}");
    }
    let ended = launch("bad-end").connect().unwrap().finish().unwrap_err();
    assert_eq!(ended.name(), "WORKER-DIED");
}

pub(crate) fn a_refused_session_answers_nothing_more() {
    let mut session = launch("refuse").connect().unwrap();
    let error = session.prefill(&PROMPT).unwrap_err();
    assert_eq!(error.to_string(), "prefill: the engine reports: out of memory");
    assert_eq!(session.prefill(&PROMPT).unwrap_err().name(), "SessionDiscarded");
    assert_eq!(session.finish().unwrap_err().name(), "SessionDiscarded");
}

pub(crate) fn what_a_worker_may_say_of_itself_changes_no_clock() {
    let mut session = with(launch(""), "--prefill-us", 30_000).connect().unwrap();
    let reply = session.prefill(&PROMPT).unwrap();
    assert!(reply.elapsed() >= Duration::from_millis(30), "the worker slept as long");
    session.close_phase().unwrap();
    // Its own `expert_read_seconds` is a nanosecond.
    session.correctness_begin(&PROMPT).unwrap();
}

pub(crate) fn correctness_and_recording_run_on_a_session() {
    let mut session = launch("").connect().unwrap();
    let case = record_case(&mut session, "story", &PROMPT, 4).unwrap();
    assert_eq!(case.expected_tokens[0], follows(&PROMPT));
    session.next_phase().unwrap();
    let (tape, run) = session.record_tape(&PROMPT, 12, Some(&SpecConfig::mtp(Some(2)))).unwrap();
    assert_eq!((tape.seed_token, run.rounds()), (follows(&PROMPT), 4));
    let oracle: Vec<i64> = [&[tape.seed_token], &tape.decode_tokens[..]].concat();

    let mut wrong = launch("wrong-tokens").connect().unwrap();
    let (emitted, _) = wrong.record_tape(&PROMPT, 12, None).unwrap();
    let emitted: Vec<i64> = [&[emitted.seed_token], &emitted.decode_tokens[..]].concat();
    let rule = ReplayRule { budget: Budget::TRACK, near_tie_gap: None };
    let (_, refusal) = judge_timed(&emitted, &oracle, &rule, || replay(&mut session, &PROMPT, &emitted, 2000)).unwrap();
    assert_eq!(refusal.unwrap().name(), "TIMED-DIVERGENCE-OVER-TOLERANCE");
}

pub(crate) fn a_raised_interrupt_ends_a_request_and_its_worker() {
    let mut launch = launch("hang-prefill");
    launch.interrupt = Interrupt::new().unwrap();
    let mut session = launch.connect().unwrap();
    let pid = session.pid();
    let raiser = std::thread::spawn(move || launch.interrupt.raise());
    assert_eq!(session.prefill(&PROMPT).unwrap_err().name(), "Interrupted");
    raiser.join().unwrap();
    assert!(is_gone(pid));
}
