//! How to decode: asked for, refused, decided, echoed (engine-protocol-v1.md 6, rules 6 to 9).

use bench_protocol::SpecConfig;
use cuda_engine::mock::Knobs;

use crate::{mock, told};

fn begin(spec: &str) -> String {
    format!(r#""kind":"free_decode_begin","seed_tokens":[7,8],"spec":{spec}"#)
}

#[test]
fn the_echo_says_what_will_run() {
    let serial = SpecConfig::serial();
    let cases = [
        (r#"{"mode":"serial"}"#.to_owned(), serial.clone()),
        (r#"{"mode":"mtp"}"#.to_owned(), SpecConfig::mtp(Some(2))),
        (r#"{"mode":"mtp","mtp":{}}"#.to_owned(), SpecConfig::mtp(Some(2))),
    ];
    let asked =
        (1..=6).map(|depth| (format!(r#"{{"mode":"mtp","mtp":{{"depth":{depth}}}}}"#), SpecConfig::mtp(Some(depth))));
    for (spec, wanted) in cases.into_iter().chain(asked) {
        let response = mock().carried_out(&begin(&spec));
        assert_eq!((response.seed_token, response.effective_spec), (Some(200_002), Some(wanted)), "{spec}");
    }
    let absent = mock().carried_out(r#""kind":"free_decode_begin","seed_tokens":[7,8]"#);
    assert_eq!(absent.effective_spec, Some(serial));
}

#[test]
fn decode_begin_is_serial_asked_for_or_not_and_refuses_to_draft() {
    for spec in ["", r#","spec":{"mode":"serial"}"#] {
        let response = mock().carried_out(&format!(r#""kind":"decode_begin","seed_tokens":[7,8]{spec}"#));
        assert_eq!((response.seed_token, response.effective_spec), (Some(200_002), Some(SpecConfig::serial())));
    }
    let drafting = r#""kind":"decode_begin","seed_tokens":[7],"spec":{"mode":"mtp","mtp":{"depth":2}}"#;
    assert_eq!(
        mock().refused(drafting),
        r#"malformed request: decode_begin runs serial only; spec mode "mtp" belongs on free_decode_begin"#
    );
}

#[test]
fn a_depth_outside_the_envelope_is_refused_and_not_clamped() {
    for depth in [0, 7, 9, u32::MAX] {
        let wanted = format!(
            "requested mtp draft depth {depth} is outside this track's envelope (1...6); an explicitly requested depth is \
             echoed verbatim, so it is refused rather than clamped. Omit the depth to let the engine choose one."
        );
        assert_eq!(mock().refused(&begin(&format!(r#"{{"mode":"mtp","mtp":{{"depth":{depth}}}}}"#))), wanted);
    }
}

#[test]
fn a_spec_that_this_track_does_not_run_is_refused_by_name() {
    let cases = [
        (r#"{"mode":"dflash"}"#, r#"spec mode "dflash" is not a mode this track runs; allowed_modes is serial, mtp"#),
        (
            r#"{"mode":"dspark","dspark":{"a":1}}"#,
            r#"spec mode "dspark" is not a mode this track runs; allowed_modes is serial, mtp"#,
        ),
        (r#"{"mode":"?"}"#, r#"spec mode "?" is not a mode this track runs; allowed_modes is serial, mtp"#),
        (
            r#"{"mode":"serial","mtp":{}}"#,
            r#"spec mode "serial" carries an mtp block; a serial run has no draft depth"#,
        ),
        (
            r#"{"mode":"serial","dflash":{}}"#,
            r#"spec key "dflash" is not one this track reads; its keys are mode, mtp"#,
        ),
    ];
    for (spec, wanted) in cases {
        assert_eq!(mock().refused(&begin(spec)), format!("malformed request: {wanted}"));
    }
}

#[test]
fn an_engine_without_a_drafter_says_so_in_hello_and_refuses_to_draft() {
    let (mut session, log) = told(Knobs { serial_only: true, ..Knobs::default() });
    let hello = bench_protocol::Response::parse(&session.worker.hello().unwrap()).unwrap();
    assert_eq!(hello.spec_modes, Some(vec!["serial".to_owned()]));
    let error = session.refused(&begin(r#"{"mode":"mtp","mtp":{"depth":1}}"#));
    let wanted = r#"spec mode "mtp" is not runnable on this engine; runnable modes are serial ("#;
    assert!(error.starts_with(wanted) && error.ends_with(')'), "{error}");
    assert_eq!(log.events(), [], "refused before an engine came up");
    session.carried_out(&begin(r#"{"mode":"serial"}"#));
}

#[test]
fn a_phase_decodes_as_it_was_asked_and_the_next_one_does_not() {
    let mut session = mock();
    let run = r#""kind":"free_decode_run","count":7"#;
    session.carried_out(&begin(r#"{"mode":"mtp","mtp":{"depth":6}}"#));
    assert_eq!(session.carried_out(run).acceptance_lengths, Some(vec![7]));
    session.close();
    session.carried_out(&begin(r#"{"mode":"serial"}"#));
    let serial = session.carried_out(run);
    assert_eq!(serial.acceptance_lengths, Some(vec![1; 7]));
    assert_eq!(
        (serial.drafted_total, serial.accepted_total, serial.verify_replay_disagreements),
        (Some(0), Some(0), None)
    );
}
