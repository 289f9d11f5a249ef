//! Sessions over the toy backend: what is generated, what is reused, what is refused, and in what state that leaves them.

#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod answers;
mod toy;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudafast_runtime::sampler::{argmax, choose, distribution};
use cudafast_runtime::{
    BackendError, CancelFlag, DepthPolicy, Error, Finish, GenEvent, GenerateOptions, Generation, MAX_DEPTH,
    SamplerScratch, Sampling, Session, SessionOptions, TokenId,
};
use proptest::prelude::*;
use toy::{Seen, TRAINED_TOKENS, Toy, VOCAB, bytes_vocab, engine, engine_with, logits_after};

fn open_with(toy: Toy, ctx_tokens: usize, snapshots: usize) -> (Session, Arc<Seen>) {
    let seen = Arc::clone(&toy.seen);
    (engine(toy).open_session(&SessionOptions { ctx_tokens, snapshots }).unwrap(), seen)
}

fn open(ctx_tokens: usize) -> (Session, Arc<Seen>) {
    open_with(Toy::new(true), ctx_tokens, 2)
}

fn greedy(max_tokens: usize, depth: usize) -> GenerateOptions {
    GenerateOptions { max_tokens, depth: DepthPolicy::Fixed(depth), ..GenerateOptions::default() }
}

fn run(session: &mut Session, prompt: &[TokenId], options: &GenerateOptions) -> Generation {
    let mut told = Vec::new();
    let generation = session
        .generate(prompt, options, &CancelFlag::default(), &mut |event| {
            if let GenEvent::Token { id, position, stop, .. } = event {
                assert_eq!(position, prompt.len() + told.len());
                assert_eq!(stop, options.stop.contains(&id));
                told.push(id);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(told, generation.tokens);
    assert_where_a_serial_run_stands(session, prompt, &generation);
    generation
}

/// The state of a serial run: the prompt and whatever was handed out but the last token.
fn assert_where_a_serial_run_stands(session: &Session, prompt: &[TokenId], generation: &Generation) {
    let run = generation.tokens.split_last().map_or(&[][..], |(_, run)| run);
    assert_eq!(session.tokens(), [prompt, run].concat());
}

/// The same text from the model's definition, with no session, no rounds and no drafts.
fn text_ref(prompt: &[TokenId], options: &GenerateOptions) -> Vec<TokenId> {
    let mut all = prompt.to_vec();
    while all.len() < prompt.len() + options.max_tokens {
        let row = logits_after(&all);
        let next = choose(&row, None, &options.sampling, &all, &mut SamplerScratch::default()).unwrap();
        all.push(next);
        if options.stop.contains(&next) {
            break;
        }
    }
    all.split_off(prompt.len())
}

fn prompt(tokens: usize) -> Vec<TokenId> {
    (0..tokens).map(|i| (i * 7 % VOCAB) as TokenId).collect()
}

proptest! {
    /// Over depths, lengths, stop ids and sampler settings at once: text is the definition's, and nothing is drafted past it.
    #[test]
    fn text_does_not_depend_on_drafting(
        n in 1usize..150,
        max_tokens in 0usize..60,
        depth in 0usize..=MAX_DEPTH,
        adaptive in any::<bool>(),
        stop in prop::collection::vec(0..VOCAB as TokenId, 0..12),
        (temperature, top_k, top_p, min_p) in (0.0f32..2.0, 0usize..20, 0.3f32..=1.0, 0.0f32..0.3),
        hot in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sampling = Sampling::new(if hot { temperature } else { 0.0 }, top_k, top_p, min_p, seed).unwrap();
        let depth = if adaptive { DepthPolicy::Adaptive { max: depth } } else { DepthPolicy::Fixed(depth) };
        let options = GenerateOptions { max_tokens, stop, sampling, depth, ..GenerateOptions::default() };
        let (mut session, seen) = open(400);
        let generation = run(&mut session, &prompt(n), &options);
        prop_assert_eq!(&generation.tokens, &text_ref(&prompt(n), &options));
        let stopped = generation.tokens.last().is_some_and(|id| options.stop.contains(id));
        prop_assert_eq!(generation.finish, if stopped { Finish::Stop } else { Finish::Length });
        for round in seen.rounds.lock().unwrap().iter() {
            prop_assert!(round.drafted < round.budget && round.next_depth <= MAX_DEPTH);
            prop_assert!(round.next_depth + 2 <= round.budget || round.next_depth == 0);
        }
    }

    /// A receiver may stop anywhere, also inside the accepted drafts of a round.
    #[test]
    fn a_receiver_that_breaks_leaves_the_state_of_a_serial_run(n in 1usize..90, after in 1usize..30, depth in 0usize..=MAX_DEPTH) {
        let (mut session, _) = open(400);
        let prompt = prompt(n);
        let mut given = 0;
        let generation = session
            .generate(&prompt, &greedy(40, depth), &CancelFlag::default(), &mut |event| {
                given += usize::from(matches!(event, GenEvent::Token { .. }));
                if given == after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        prop_assert_eq!(generation.tokens.len(), after);
        prop_assert_eq!(generation.finish, Finish::Cancelled);
        assert_where_a_serial_run_stands(&session, &prompt, &generation);
        let all = [&prompt[..], &generation.tokens].concat();
        let more = run(&mut session, &all, &greedy(10, depth));
        prop_assert_eq!(more.tokens, text_ref(&all, &greedy(10, 0)));
    }

    /// vllm#54173 in kind: prompts that share beginnings, cut anywhere, in any order.
    #[test]
    fn whatever_ran_before_the_text_is_that_of_a_cold_session(
        snapshots in 0usize..4,
        turns in prop::collection::vec((0usize..3, 1usize..300, 0usize..20, 0usize..4), 1..12),
    ) {
        let (mut session, seen) = open_with(Toy::new(true), 400, snapshots);
        for (kind, length, max_tokens, depth) in turns {
            let mut prompt = prompt(length);
            prompt.iter_mut().skip(100 * kind).for_each(|t| *t = (*t + kind as TokenId) % VOCAB as TokenId);
            seen.prefilled.store(0, Ordering::Relaxed);
            let generation = run(&mut session, &prompt, &greedy(max_tokens, depth));
            prop_assert_eq!(&generation.tokens, &text_ref(&prompt, &greedy(max_tokens, 0)));
            let timings = generation.timings;
            prop_assert_eq!(timings.prefill_tokens + timings.cached_tokens, prompt.len());
            prop_assert_eq!(timings.prefill_tokens, seen.prefilled.load(Ordering::Relaxed));
        }
    }
}

#[test]
fn a_round_commits_accepted_drafts_and_counts_them() {
    let (mut session, _) = open(400);
    let generation = run(&mut session, &prompt(10), &greedy(100, 3));
    assert!(generation.accepted() > 20, "the toy's head is right three times of four");
    assert!(generation.accepted() < generation.drafted());
    assert_eq!(generation.tokens.len(), 1 + generation.rounds.len() + generation.accepted());
    assert_eq!(generation.timings.decode_tokens, 99);
}

#[test]
fn the_last_token_of_a_request_is_chosen_and_not_run() {
    let (mut session, seen) = open(400);
    run(&mut session, &prompt(10), &greedy(1, 6));
    assert_eq!(session.tokens().len(), 10);
    assert!(seen.rounds.lock().unwrap().is_empty());
    run(&mut session, &prompt(10), &greedy(5, 6));
    assert_eq!(session.tokens().len(), 14);
}

/// ds4#150, llama.cpp#15780: a prompt that is too long was cut or met the wrong limit.
#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers_and_the_session_goes_on() {
    let (mut session, _) = open(50);
    let first = run(&mut session, &prompt(20), &greedy(5, 2));
    let before = session.tokens().to_vec();
    let refuse = |session: &mut Session, prompt: &[TokenId], options: &GenerateOptions| {
        session.generate(prompt, options, &CancelFlag::default(), &mut |_| ControlFlow::Continue(())).unwrap_err()
    };
    let error = refuse(&mut session, &prompt(51), &greedy(5, 2));
    assert!(matches!(error, Error::PromptTooLong { prompt: 51, limit: 50, trained: TRAINED_TOKENS }));
    assert!(error.to_string().contains("51") && error.to_string().contains("50"));
    assert!(matches!(refuse(&mut session, &[], &greedy(5, 2)), Error::EmptyPrompt));
    let foreign = refuse(&mut session, &[1, VOCAB as TokenId], &greedy(5, 2));
    assert!(matches!(foreign, Error::Backend(BackendError::TokenOutsideVocabulary { .. })));
    assert!(matches!(refuse(&mut session, &prompt(3), &greedy(5, 7)), Error::InvalidDepth { found: 7, max: 6 }));
    assert_eq!(session.tokens(), before);
    let all = [&prompt(20)[..], &first.tokens].concat();
    assert_eq!(run(&mut session, &all, &greedy(5, 2)).tokens, text_ref(&all, &greedy(5, 0)));
}

#[test]
fn a_full_context_ends_the_answer_and_drafts_stay_inside_it() {
    for depth in 0..=MAX_DEPTH {
        for length in 1..=20 {
            let (mut session, _) = open(20);
            let generation = run(&mut session, &prompt(length), &greedy(100, depth));
            assert_eq!(generation.finish, Finish::ContextFull);
            // Every position of the context holds a token, and the row of the last one chose one more.
            assert_eq!(session.tokens().len(), 20);
            assert_eq!(generation.tokens, text_ref(&prompt(length), &greedy(21 - length, 0)));
        }
    }
}

#[test]
fn an_id_that_stands_for_nothing_is_never_chosen() {
    for sampling in [Sampling::greedy(), Sampling::new(1.0, 0, 1.0, 0.0, 7).unwrap()] {
        let options = |depth| GenerateOptions { sampling, ..greedy(300, depth) };
        let all = run(&mut open(400).0, &prompt(9), &options(2)).tokens;
        assert!(all.iter().any(|id| *id >= 256), "the model would choose them");
        let mut texts = (0..=MAX_DEPTH).map(|depth| {
            let engine = engine_with(Toy::new(true), bytes_vocab());
            let mut session = engine.open_session(&SessionOptions { ctx_tokens: 400, snapshots: 0 }).unwrap();
            run(&mut session, &prompt(9), &options(depth)).tokens
        });
        let serial = texts.next().unwrap();
        assert!(serial.iter().all(|id| *id < 256));
        assert!(texts.all(|text| text == serial));
    }
}

#[test]
fn a_context_past_the_trained_one_is_refused() {
    for found in [0, TRAINED_TOKENS + 1] {
        let refused = engine(Toy::new(true)).open_session(&SessionOptions { ctx_tokens: found, snapshots: 0 });
        assert!(matches!(refused.err(), Some(Error::InvalidContext { trained: TRAINED_TOKENS, .. })));
    }
}

#[test]
fn without_a_draft_head_a_fixed_depth_is_refused_and_an_adaptive_one_is_serial() {
    let (mut session, seen) = open_with(Toy::new(false), 100, 0);
    let refused =
        session.generate(&prompt(3), &greedy(5, 2), &CancelFlag::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::NoDraftHead { depth: 2 })));
    let adaptive = GenerateOptions { depth: DepthPolicy::Adaptive { max: 6 }, ..greedy(20, 0) };
    assert_eq!(run(&mut session, &prompt(3), &adaptive).tokens, text_ref(&prompt(3), &adaptive));
    assert!(seen.rounds.lock().unwrap().iter().all(|r| r.drafted == 0 && r.next_depth == 0));
}

/// halo-box/strix-llama.cpp#34: an endless loop without output.
#[test]
fn a_round_that_commits_nothing_is_an_error_and_not_a_loop() {
    let mut toy = Toy::new(true);
    toy.stall_at = Some(3);
    let (mut session, _) = open_with(toy, 100, 0);
    let stalled =
        session.generate(&prompt(3), &greedy(50, 2), &CancelFlag::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(stalled, Err(Error::Stalled { committed: 0, .. })));
}

#[test]
fn a_raised_flag_ends_decoding_between_rounds_and_prefill_between_chunks() {
    let (mut session, _) = open(400);
    let flag = CancelFlag::default();
    let raised = flag.clone();
    let generation = session
        .generate(&prompt(10), &greedy(300, 2), &flag, &mut |event| {
            if matches!(event, GenEvent::Token { position: 50.., .. }) {
                raised.raise();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(generation.finish, Finish::Cancelled);
    assert!(generation.tokens.len() >= 41 && generation.tokens.len() < 50);
    assert_where_a_serial_run_stands(&session, &prompt(10), &generation);

    let (mut session, seen) = open(400);
    let flag = CancelFlag::default();
    *seen.cancel_at.lock().unwrap() = Some((128, flag.clone()));
    let none = session.generate(&prompt(300), &greedy(5, 2), &flag, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((none.finish, none.tokens.len()), (Finish::Cancelled, 0));
    assert_eq!(session.tokens(), &prompt(300)[..128]);
    *seen.cancel_at.lock().unwrap() = None;
    flag.clear();
    let resumed = run(&mut session, &prompt(300), &greedy(5, 2));
    assert_eq!(resumed.timings.cached_tokens, 128);
    assert_eq!(resumed.tokens, text_ref(&prompt(300), &greedy(5, 0)));
}

/// llama.cpp#20225, #21831: every turn of a chat prefilled everything again.
#[test]
fn ten_turns_of_a_chat_reuse_nine_tenths_of_the_previous_prompt() {
    let (mut session, _) = open(4096);
    // A turn opens the answer with tokens that history renders differently, as chat templates do.
    let opening = [200, 201, 202, 203];
    let mut history = prompt(150);
    let mut previous = 0;
    for turn in 0..10 {
        history.extend((0..40).map(|i| (i * 11 + turn) % VOCAB as TokenId));
        let asked = [&history[..], &opening].concat();
        let generation = run(&mut session, &asked, &greedy(50, 2));
        let cached = generation.timings.cached_tokens;
        assert!(cached + 64 + 16 >= previous, "turn {turn}: {cached} of {previous}");
        assert!(previous < 800 || cached * 10 >= previous * 9, "turn {turn}: {cached} of {previous}");
        previous = asked.len();
        history.push(204);
        history.extend(&generation.tokens);
    }
}

/// Rapid-MLX#214: an answer fed back as it was handed out must be covered whole.
#[test]
fn a_prompt_that_goes_on_from_the_answer_runs_only_what_is_added() {
    let (mut session, _) = open(400);
    let first = run(&mut session, &prompt(100), &greedy(30, 3));
    let all = [&prompt(100)[..], &first.tokens, &[1, 2, 3]].concat();
    let second = run(&mut session, &all, &greedy(5, 3));
    assert_eq!(second.timings.cached_tokens, 129); // the last token handed out was not run
    assert_eq!(second.timings.prefill_tokens, 4);
}

#[test]
fn prompts_that_part_after_a_shared_beginning_reuse_it_from_the_third_on() {
    let (mut session, _) = open(2000);
    let asked = |question: TokenId| [&prompt(1000)[..], &[question; 90]].concat();
    assert_eq!(run(&mut session, &asked(1), &greedy(3, 2)).timings.cached_tokens, 0);
    run(&mut session, &asked(2), &greedy(3, 2));
    assert_eq!(run(&mut session, &asked(3), &greedy(3, 2)).timings.cached_tokens, 960);
    assert_eq!(run(&mut session, &asked(4), &greedy(3, 2)).timings.cached_tokens, 960);
}

#[test]
fn reset_keeps_what_can_be_reused_and_nothing_else() {
    let (mut session, _) = open(400);
    run(&mut session, &prompt(200), &greedy(5, 2));
    session.reset();
    assert!(session.tokens().is_empty());
    let again = run(&mut session, &prompt(200), &greedy(5, 2));
    assert_eq!(again.timings.cached_tokens, 128);
}

#[test]
fn every_row_of_a_prompt_gives_its_logits_in_order_and_clears_the_session_first() {
    let (mut session, _) = open(400);
    run(&mut session, &prompt(70), &greedy(5, 2));
    let tokens = prompt(90);
    let mut rows = 0;
    session
        .logits(&tokens, &CancelFlag::default(), &mut |position, row| {
            assert_eq!(position, rows);
            assert_eq!(row, logits_after(&tokens[..=position]));
            rows += 1;
        })
        .unwrap();
    assert_eq!(rows, 90);
    assert_eq!(session.tokens(), tokens);
    assert!(matches!(session.logits(&[], &CancelFlag::default(), &mut |_, _| {}), Err(Error::EmptyPrompt)));
}

#[test]
fn a_stop_id_is_the_last_token_handed_out_whether_drafted_or_not() {
    let prompt = prompt(10);
    let free = text_ref(&prompt, &greedy(60, 0));
    for depth in 0..=MAX_DEPTH {
        for at in [0, 1, 7, 20] {
            let first = free.iter().position(|t| *t == free[at]).unwrap();
            let options = GenerateOptions { stop: vec![free[at]], ..greedy(60, depth) };
            let (mut session, _) = open(400);
            let generation = run(&mut session, &prompt, &options);
            assert_eq!((generation.finish, &generation.tokens[..]), (Finish::Stop, &free[..=first]));
        }
    }
}

/// Cells of `(second, third)` generated token with their probabilities, from the model's definition; paths less likely than
/// one in a million are left to the rest.
fn pairs_ref(prompt: &[TokenId], sampling: &Sampling) -> BTreeMap<(TokenId, TokenId), f64> {
    let mut cells = BTreeMap::new();
    let next = |all: &[TokenId]| distribution(&logits_after(all), None, sampling, all).unwrap();
    for (first, p1) in next(prompt) {
        let all = [prompt, &[first]].concat();
        for (second, p2) in next(&all).into_iter().filter(|c| c.1 * p1 > 1e-6) {
            for (third, p3) in next(&[&all[..], &[second]].concat()) {
                *cells.entry((second, third)).or_default() += f64::from(p1) * f64::from(p2) * f64::from(p3);
            }
        }
    }
    cells
}

/// Design 3.6: sampled drafting is distribution-exact. 20,000 seeds for each cell of the grid, other seeds with drafting than
/// without; pairs of tokens are counted, so that the row behind an accepted draft and the row of a rejected one both count.
/// Bound: mean + 5 standard deviations of the statistic. The seeds are fixed, so the test cannot flake.
#[test]
fn sampled_pairs_follow_the_distribution_with_drafting_and_without() {
    let prompt = prompt(5);
    let grid =
        [(0.025, 0, 1.0, 0.0), (0.1, 3, 1.0, 0.0), (0.03, 0, 0.8, 0.0), (0.03, 0, 1.0, 0.1), (0.1, 5, 0.9, 0.05)];
    for (index, (temperature, top_k, top_p, min_p)) in grid.into_iter().enumerate() {
        for depth in [0, 2] {
            let (mut session, _) = open(64);
            let sampling = |seed| Sampling::new(temperature, top_k, top_p, min_p, seed).unwrap();
            let draws = 20_000u32;
            let (mut counts, mut drafted, mut accepted) = (BTreeMap::new(), 0, 0);
            for draw in 0..draws {
                let seed = (u64::from(draw) << 8) + (10 * index + depth) as u64;
                // Four tokens, so that the budget leaves room for drafts behind the third.
                let options = GenerateOptions { sampling: sampling(seed), ..greedy(4, depth) };
                let none = &mut |_: GenEvent<'_>| ControlFlow::Continue(());
                let generation = session.generate(&prompt, &options, &CancelFlag::default(), none).unwrap();
                let tokens = &generation.tokens;
                *counts.entry((tokens[1], tokens[2])).or_insert(0u32) += 1;
                (drafted, accepted) = (drafted + generation.drafted(), accepted + generation.accepted());
            }
            assert_eq!(depth > 0, drafted > 0);
            let share = f64::from(accepted as u32) / f64::from(drafted.max(1) as u32);
            assert!(depth == 0 || (share > 0.08 && share < 0.9), "both outcomes must be common: {share}");

            let (mut chi, mut cells) = (0.0, 0u32);
            let (mut rest, mut rest_seen) = (f64::from(draws), f64::from(draws));
            for (pair, p) in pairs_ref(&prompt, &sampling(0)) {
                let (want, seen) = (p * f64::from(draws), f64::from(counts.get(&pair).copied().unwrap_or(0)));
                if want >= 5.0 {
                    (chi, cells) = (chi + (seen - want).powi(2) / want, cells + 1);
                    (rest, rest_seen) = (rest - want, rest_seen - seen);
                }
            }
            if rest >= 5.0 {
                (chi, cells) = (chi + (rest_seen - rest).powi(2) / rest, cells + 1);
            }
            let freedom = f64::from(cells - 1);
            assert!(
                freedom >= 5.0 && chi < freedom + 5.0 * (2.0 * freedom).sqrt(),
                "cell {index} depth {depth}: {chi} of {freedom}"
            );
        }
    }
}

#[test]
fn the_toy_is_a_model_and_not_a_constant() {
    let choices: BTreeSet<_> = (1..50).map(|n| argmax(&logits_after(&prompt(n)))).collect();
    assert!(choices.len() > 30);
}
