//! Phases: what opens one, what needs one, what ends one, and that nothing of one is left (engine-protocol-v1.md 6, rules 1 to 4).

use cuda_engine::mock::{Event, Knobs, Mock};

use crate::{CLOSE, OPENERS, STEPS, Session, mock, told};

#[test]
fn an_opener_inside_any_phase_is_a_double_open_and_ends_the_phase() {
    for (first, open) in OPENERS {
        for (second, arrived) in OPENERS {
            let mut session = mock();
            session.carried_out(first);
            let wanted = format!(
                "double-open: {arrived} arrived while a {open} phase was still open (missing phase_diagnostics)"
            );
            assert_eq!(session.refused(second), wanted);
            assert!(session.has_no_phase());
            session.carried_out(second);
        }
    }
}

#[test]
fn a_step_without_a_phase_and_a_step_of_another_phase_are_refused() {
    for (step, kind, needed) in STEPS {
        assert_eq!(mock().refused(step), format!("{kind} with no open phase"));
        for (opener, open) in OPENERS {
            let mut session = mock();
            session.carried_out(opener);
            if open == needed {
                session.carried_out(step);
                session.close();
            } else {
                let wanted = format!("{kind} has no matching opener: current phase is {open}, not {needed}");
                assert_eq!(session.refused(step), wanted);
                assert!(session.has_no_phase());
            }
        }
    }
}

#[test]
fn a_barrier_without_a_phase_is_refused_and_with_one_closes_it() {
    for (opener, _) in OPENERS {
        let mut session = mock();
        assert_eq!(session.refused(CLOSE), "phase_diagnostics with no open phase to close");
        session.carried_out(opener);
        session.close();
        assert!(session.has_no_phase());
    }
}

/// The table of engine-protocol-v1.md 6: prefill and correctness add nothing, a seed forward 1, a step 1, a run its rounds.
#[test]
fn the_barrier_reports_the_work_of_its_phase_alone() {
    let mut session = mock();
    let [prefill, decode, correctness, anchor, free] = OPENERS.map(|(opener, _)| opener);
    let [decode_step, anchor_step, run] = STEPS.map(|(step, ..)| step);
    let mtp = r#""kind":"free_decode_begin","seed_tokens":[1],"spec":{"mode":"mtp","mtp":{"depth":2}}"#;
    let phases: [(&[&str], u64); 9] = [
        (&[prefill], 0),
        (&[decode], 1),
        (&[decode, decode_step, decode_step], 3),
        (&[correctness], 0),
        (&[anchor], 1),
        (&[anchor, anchor_step, anchor_step, anchor_step], 4),
        (&[free], 1),
        (&[free, run, run], 9),
        (&[mtp, run], 3),
    ];
    // Twice: the second time finds nothing of the first.
    for (verbs, work) in phases.into_iter().chain(phases) {
        verbs.iter().for_each(|verb| drop(session.carried_out(verb)));
        assert_eq!(session.close(), work, "{verbs:?}");
    }
}

#[test]
fn the_barrier_reports_zero_experts_and_memory_and_no_allocator_cache() {
    let mut session = mock();
    session.carried_out(OPENERS[0].0);
    let barrier = session.carried_out(CLOSE);
    assert_eq!(barrier.expert_stats, Some(bench_protocol::ExpertStats::default()));
    assert_eq!((barrier.peak_ram_gb, barrier.cache_memory), (Some(18.5), None));
}

#[test]
fn every_phase_has_an_engine_of_its_own_that_is_emptied_first_and_dropped_last() {
    let (mut session, log) = told(Knobs::default());
    let mut wanted = Vec::new();
    for (opener, _) in OPENERS {
        session.carried_out(opener);
        session.close();
        wanted.extend([Event::Created, Event::Drained, Event::Forward(2), Event::Dropped]);
    }
    assert_eq!(log.events(), wanted);
}

/// engine-protocol-v1.md 8: nothing of the prompt is left for the run, and none of the run's work is done before it.
#[test]
fn begin_runs_the_whole_seed_once_and_the_run_runs_its_tokens_and_no_prompt() {
    let specs = [
        ("", [1, 1, 1, 1, 1, 1, 1].as_slice()),
        (r#","spec":{"mode":"mtp","mtp":{"depth":2}}"#, &[3, 1, 3]),
        (r#","spec":{"mode":"mtp","mtp":{"depth":6}}"#, &[7]),
    ];
    for (spec, rounds) in specs {
        let (mut session, log) = told(Knobs::default());
        session.carried_out(&format!(r#""kind":"free_decode_begin","seed_tokens":[4,5,6]{spec}"#));
        let begun = log.events();
        assert_eq!(begun, [Event::Created, Event::Drained, Event::Forward(3)]);
        session.carried_out(r#""kind":"free_decode_run","count":7"#);
        let run: Vec<_> = rounds.iter().map(|&length| Event::Forward(length)).collect();
        assert_eq!(log.events()[begun.len()..], run);
    }
}

#[test]
fn an_engine_that_is_not_empty_when_a_phase_opens_is_refused_and_dropped() {
    for (opener, _) in OPENERS {
        let (mut session, log) = told(Knobs { residual_bytes: 4096, ..Knobs::default() });
        let wanted = "allocator drain left 4096 residual bytes (want verified-zero)";
        assert_eq!(session.refused(opener), wanted);
        assert_eq!(log.events(), [Event::Created, Event::Drained, Event::Dropped]);
        assert!(session.has_no_phase());
    }
}

#[test]
fn a_fault_of_the_engine_ends_the_phase_and_the_worker_goes_on() {
    let faulting = [
        (None, r#""kind":"prefill","prompt_tokens":[13]"#),
        (Some(OPENERS[1].0), r#""kind":"decode_step","token":13"#),
        (Some(OPENERS[3].0), r#""kind":"correctness_step","token":13"#),
    ];
    for (opener, verb) in faulting {
        let (mut session, log) = told(Knobs { fault_on: Some(13), ..Knobs::default() });
        opener.into_iter().for_each(|opener| drop(session.carried_out(opener)));
        assert!(session.refused(verb).starts_with("engine fault: "), "{verb}");
        assert_eq!(log.events().last(), Some(&Event::Dropped));
        assert!(session.has_no_phase());
        session.carried_out(OPENERS[0].0);
        assert_eq!(session.close(), 0);
    }
}

#[test]
fn any_refusal_ends_the_phase() {
    let refused = [
        r#""kind":"no such verb""#,
        r#""kind":"decode_step""#,
        r#""kind":"decode_step","token":9223372036854775807"#,
        r#""kind":"free_decode_run","count":0"#,
        r#""kind":"free_decode_begin","seed_tokens":[1],"spec":{"mode":"mtp","mtp":{"depth":9}}"#,
    ];
    for verb in refused {
        let (mut session, log) = told(Knobs::default());
        session.carried_out(OPENERS[1].0);
        session.refused(verb);
        assert_eq!(log.events().last(), Some(&Event::Dropped), "{verb}");
        assert!(session.has_no_phase(), "{verb}");
    }
}

/// The end of the stream closes what is open and says nothing (engine-protocol-v1.md 2).
#[test]
fn the_end_of_the_requests_drops_an_open_phase_without_a_word() {
    let mock = Mock::default();
    let log = mock.lifecycle();
    let mut written = Vec::new();
    let requests: &[u8] = b"{\"id\":1,\"kind\":\"prefill\",\"prompt_tokens\":[1]}";
    Session::over(mock).worker.serve(requests, &mut written).unwrap();
    assert_eq!(written.iter().filter(|&&byte| byte == b'\n').count(), 2, "hello and one response");
    assert_eq!(log.events().last(), Some(&Event::Dropped));
}
