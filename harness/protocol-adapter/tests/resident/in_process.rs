//! Speculative cycles, teacher-forced steps and positions of the engine in this process.

use cuda_engine::target::engine::{Choice, InProcess};
use cuda_engine::target::{Drafting, Target, TargetError, Token};

use crate::SEED;

const COUNT: usize = 24;

/// The embedded model with its draft head, on one thread: tests run side by side.
fn embedded() -> InProcess {
    let choice = Choice { threads: 1, ctx_tokens: Some(512), ..Choice::of("embedded") };
    InProcess::open(&choice, "test").unwrap()
}

/// `count` tokens behind `first`, one forward each.
fn serial(target: &mut dyn Target, first: Token, count: usize) -> Vec<Token> {
    let mut stream = Vec::new();
    let mut pending = first;
    while stream.len() < count {
        pending = target.eval(pending).unwrap();
        stream.push(pending);
    }
    stream
}

/// The same by speculative cycles, and how many tokens each committed.
fn drafted(target: &mut dyn Target, first: Token, count: usize) -> (Vec<Token>, Vec<usize>) {
    let (mut stream, mut lengths) = (Vec::new(), Vec::new());
    let mut pending = first;
    while stream.len() < count {
        let cycle = target.eval_speculative(pending, (count - stream.len()) as u32).unwrap();
        assert_eq!(cycle.committed[0], pending, "a cycle commits what it was fed");
        stream.extend_from_slice(&cycle.committed[1..]);
        stream.push(cycle.next);
        lengths.push(cycle.committed.len());
        pending = cycle.next;
    }
    (stream, lengths)
}

#[test]
fn cycles_of_every_depth_commit_the_serial_stream_and_nothing_past_it() {
    let mut engine = embedded();
    assert_eq!(engine.facts().drafting, Drafting::UpTo(6));
    let first = engine.sync(&SEED).unwrap();
    assert_eq!(engine.position(), SEED.len(), "a prompt is all that sync runs");
    let wanted = serial(&mut engine, first, COUNT);
    assert_eq!(engine.position(), SEED.len() + COUNT);
    let logits = engine.top_logits(8);
    assert_eq!(engine.counters().drafts, 0, "serial steps draft nothing");

    for depth in 1..=6 {
        engine.arm(depth).unwrap();
        engine.invalidate();
        assert_eq!((engine.position(), engine.argmax()), (0, None));
        let before = engine.counters();
        assert_eq!(engine.sync(&SEED).unwrap(), first);
        let (stream, lengths) = drafted(&mut engine, first, COUNT);
        assert_eq!(stream, wanted, "depth {depth}");
        assert_eq!(engine.position(), SEED.len() + COUNT, "rejected drafts leave nothing behind");
        assert_eq!(engine.top_logits(8), logits, "depth {depth}: the last row has the bits of the serial one");
        assert!(lengths.iter().all(|length| (1..=depth as usize + 1).contains(length)), "{lengths:?}");
        let (drafts, hits) = (engine.counters().drafts - before.drafts, engine.counters().hits - before.hits);
        assert_eq!(hits as usize, COUNT - lengths.len(), "every token but a round's own was a draft");
        assert!(drafts >= hits && drafts > 0);
        assert_eq!((engine.counters().quenches, engine.counters().disagreements), (0, 0));
    }
}

#[test]
fn a_step_takes_the_callers_token_and_cycles_go_on_from_there() {
    let mut engine = embedded();
    let choice = engine.sync(&SEED).unwrap();
    let other = if choice == 100 { 101 } else { 100 };
    let next = engine.eval(other).unwrap();
    let wanted = serial(&mut engine, next, 8);
    let top = engine.top_logits(8);
    assert_eq!((top.len(), top[0].0), (8, wanted[7]), "the frontier argmax leads the logits");

    engine.arm(3).unwrap();
    engine.sync(&SEED).unwrap();
    // Drafts behind the engine's own choice are waiting now, and are given up for the caller's token.
    engine.eval_speculative(choice, 2).unwrap();
    engine.sync(&SEED).unwrap();
    let cycle = engine.eval_speculative(other, 1).unwrap();
    assert_eq!((cycle.committed, cycle.next), (vec![other], next));
    assert_eq!(drafted(&mut engine, next, 8).0, wanted);
    assert_eq!(engine.top_logits(8), top);
}

#[test]
fn what_cannot_be_run_is_refused_and_the_state_stays() {
    let mut engine = embedded();
    assert!(matches!(engine.eval(5), Err(TargetError::NoPrompt)));
    assert!(matches!(engine.sync(&[]), Err(TargetError::EmptyPrompt)));
    assert_eq!((engine.argmax(), engine.top_logits(8)), (None, vec![]));
    let first = engine.sync(&SEED).unwrap();
    for foreign in [-1, 4096, i32::MAX] {
        assert!(
            matches!(engine.eval(foreign), Err(TargetError::TokenOutsideVocabulary { token, vocab: 4096 }) if token == foreign)
        );
        assert!(matches!(engine.sync(&[1, foreign]), Err(TargetError::TokenOutsideVocabulary { .. })));
        assert!(matches!(engine.eval_speculative(foreign, 3), Err(TargetError::TokenOutsideVocabulary { .. })));
    }
    assert!(matches!(engine.eval_speculative(first, 0), Err(TargetError::Budget)));
    for depth in [0, 7] {
        assert!(matches!(engine.arm(depth), Err(TargetError::Depth { .. })));
    }
    assert_eq!((engine.position(), engine.argmax()), (SEED.len(), Some(first)));
    assert!(matches!(engine.sync(&[7; 513]), Err(TargetError::Engine(_))), "the context holds 512");
}

#[test]
fn the_embedded_model_says_what_it_is() {
    let engine = embedded();
    let facts = engine.facts();
    assert_eq!(facts.backend, "cudafast test");
    assert!(facts.device.starts_with("cpu "), "{}", facts.device);
    assert_eq!((facts.vocab, facts.eos, facts.ctx_tokens), (4096, Some(4093), 512));
    assert_eq!(facts.stop_ids, [4091, 4093]);
    assert!(facts.model_path.starts_with("embedded:") && facts.mtp_head_path.starts_with("embedded:"));
    assert!(engine.peak_ram_bytes().is_some_and(|bytes| bytes > 1 << 20));
}
