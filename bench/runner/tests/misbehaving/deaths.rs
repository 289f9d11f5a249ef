use bench_runner::{SessionError, WorkerSession};

use crate::cheats::is_gone;
use crate::worker::launch;

const STEPS: [&str; 9] = [
    "hello",
    "prefill",
    "phase_diagnostics",
    "free_decode_begin",
    "free_decode_run",
    "correctness_begin",
    "correctness_step",
    "correctness",
    "end",
];

/// One request of the name; the ones before it that it needs have passed.
fn step(session: &mut WorkerSession, step: &str) -> Result<(), SessionError> {
    let prompt = [1, 2];
    match step {
        "prefill" => session.prefill(&prompt).map(drop),
        "free_decode_begin" => session.free_decode_begin(&prompt, None).map(drop),
        "free_decode_run" => session.free_decode_run(4).map(drop),
        "correctness_begin" => session.correctness_begin(&prompt).map(drop),
        "correctness_step" => session.correctness_step(3).map(drop),
        "correctness" => session.correctness(&prompt, 3).map(drop),
        _ => session.close_phase().map(drop),
    }
}

fn all_steps(mut session: WorkerSession, mut before: impl FnMut(&WorkerSession, &str)) -> Result<(), SessionError> {
    let order = [
        "prefill",
        "phase_diagnostics",
        "free_decode_begin",
        "free_decode_run",
        "phase_diagnostics",
        "correctness_begin",
        "correctness_step",
        "phase_diagnostics",
        "correctness",
        "phase_diagnostics",
    ];
    for name in order {
        before(&session, name);
        step(&mut session, name)?;
    }
    before(&session, "end");
    session.finish()
}

pub(crate) fn a_worker_that_dies_at_any_step_is_named_and_leaves_nothing() {
    for at in STEPS {
        let mut pid = None;
        let session = launch(&format!("die-{at}")).connect();
        let died = session.and_then(|session| {
            pid = Some(session.pid());
            all_steps(session, |_, _| ())
        });
        let error = died.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.name(), "WORKER-DIED", "{at}: {text}");
        assert!(text.contains(&format!("{at}: the worker ended (signal: 6")), "{at}: {text}");
        assert!(text.contains("token-validation-failed") && !text.contains("501"), "{at}: {text}");
        assert!(pid.is_none_or(is_gone), "{at}");
    }
}

pub(crate) fn a_worker_killed_from_outside_is_named_and_leaves_nothing() {
    for at in STEPS.into_iter().filter(|step| *step != "hello") {
        let session = launch("").connect().unwrap();
        let pid = session.pid();
        let killed = all_steps(session, |session, name| {
            if name == at {
                let pid = rustix::process::Pid::from_raw(session.pid() as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        });
        let error = killed.unwrap_err();
        assert_eq!(error.name(), "WORKER-DIED", "{at}: {error}");
        assert!(is_gone(pid), "{at}");
    }
}
