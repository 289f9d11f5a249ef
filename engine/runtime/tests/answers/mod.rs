//! Everything a request may ask for at once, against its definition; stop strings; what is refused.

use cudafast_runtime::{GenerateOptions, LogitEdit, MAX_TOP_LOGPROBS, Penalties, TokenLogprobs};
use cudafast_text::Tokenizer;

use super::*;

fn tokenizer() -> Tokenizer {
    engine(Toy::new(true)).tokenizer().clone()
}

/// What came of a request, and what its receiver was told.
#[derive(Debug, PartialEq)]
struct Answer {
    tokens: Vec<TokenId>,
    text: String,
    logprobs: Vec<TokenLogprobs>,
    finish: Finish,
}

/// The definition: one token after another from the model's own rows, the whole text searched after each.
fn answer_ref(prompt: &[TokenId], options: &GenerateOptions) -> Answer {
    let edit = LogitEdit { bias: options.logit_bias.clone(), allowed: None };
    let sampling = options.sampling.answering_from(prompt.len());
    let (mut all, mut logprobs, mut text) = (prompt.to_vec(), Vec::new(), String::new());
    let mut decoder = tokenizer().stream().hiding_special();
    let mut finish = Finish::Length;
    let cut = |text: &mut String| {
        let longest_first = |index: &usize| usize::MAX - options.stop_strings[*index].len();
        let found = |end: usize| {
            let ends = |index: &usize| text[..end].ends_with(&options.stop_strings[*index]);
            (0..options.stop_strings.len()).filter(ends).min_by_key(longest_first)
        };
        let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
        let (end, index) = ends.filter_map(|end| Some((end, found(end)?))).next()?;
        text.truncate(end - options.stop_strings[index].len());
        Some(Finish::StopString(index))
    };
    while all.len() < prompt.len() + options.max_tokens && finish == Finish::Length {
        let row = logits_after(&all);
        let next = choose(&row, Some(&edit), &sampling, &all, &mut SamplerScratch::default()).unwrap();
        all.push(next);
        logprobs.extend(options.top_logprobs.map(|top| TokenLogprobs::of(&row, next, top)));
        if options.stop.contains(&next) {
            finish = Finish::Stop;
            break;
        }
        text.push_str(&decoder.push(next));
        finish = cut(&mut text).unwrap_or(finish);
    }
    // What the end makes of a character begun is text as any other.
    if !matches!(finish, Finish::StopString(_)) {
        text.push_str(&decoder.finish());
        finish = cut(&mut text).unwrap_or(finish);
    }
    Answer { tokens: all.split_off(prompt.len()), text, logprobs, finish }
}

/// Runs a request and holds what the receiver was told against what came of it.
fn ask(session: &mut Session, prompt: &[TokenId], options: &GenerateOptions) -> Answer {
    let (mut tokens, mut text, mut logprobs, mut end) = (Vec::new(), String::new(), Vec::new(), None);
    let mut sink = |event: GenEvent<'_>| {
        assert_eq!(end, None, "nothing follows the end");
        match event {
            GenEvent::Prefilled(_) => {}
            GenEvent::Token { id, text: piece, logprobs: of, .. } => {
                tokens.push(id);
                text.push_str(piece);
                logprobs.extend(of.cloned());
            }
            GenEvent::End { text: rest, finish } => {
                text.push_str(rest);
                end = Some(finish);
            }
        }
        ControlFlow::Continue(())
    };
    let generation = session.generate(prompt, options, &CancelFlag::default(), &mut sink).unwrap();
    assert_eq!((&tokens, &text, &logprobs), (&generation.tokens, &generation.text, &generation.logprobs));
    assert_eq!(end, Some(generation.finish));
    assert_where_a_serial_run_stands(session, prompt, &generation);
    Answer { tokens, text, logprobs, finish: generation.finish }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Bias, penalties, sampling, stop strings cut out of the very text, and log-probabilities, at any depth; then a second turn.
    #[test]
    fn an_answer_is_its_definition_at_every_depth_whatever_is_asked_for(
        n in 1usize..40,
        depth in 0usize..=MAX_DEPTH,
        temperature in prop_oneof![Just(0.0f32), 0.02f32..0.5],
        (repeat, presence, frequency) in (0.8f32..1.5, -0.5f32..1.0, -0.1f32..0.5),
        bias in prop::collection::vec((0..VOCAB as TokenId, -3.0f32..3.0), 0..4),
        top_logprobs in prop::option::of(0usize..5),
        stops in prop::collection::vec((any::<prop::sample::Index>(), 1usize..5), 0..3),
        seed in any::<u64>(),
    ) {
        let penalties = Penalties::new(repeat, presence, frequency).unwrap();
        let sampling = Sampling::new(temperature, 0, 1.0, 0.0, seed).unwrap().with_penalties(penalties);
        let mut options = GenerateOptions { sampling, logit_bias: bias, top_logprobs, ..greedy(40, depth) };
        let free: Vec<char> = answer_ref(&prompt(n), &options).text.chars().collect();
        let cut = |(at, length): (prop::sample::Index, usize)| free.iter().skip(at.index(free.len())).take(length).collect();
        options.stop_strings = stops.into_iter().map(cut).collect();
        let (mut session, _) = open(400);
        let first = ask(&mut session, &prompt(n), &options);
        let all = [&prompt(n)[..], &first.tokens, &[1, 2]].concat();
        prop_assert_eq!(first, answer_ref(&prompt(n), &options));
        prop_assert_eq!(ask(&mut session, &all, &options), answer_ref(&all, &options));
    }
}

#[test]
fn a_stop_string_is_found_inside_accepted_drafts_and_none_of_it_is_given_out() {
    let free = answer_ref(&prompt(10), &greedy(60, 0)).text;
    let chars: Vec<char> = free.chars().collect();
    let mut behind_a_draft = 0;
    for at in (4..40).step_by(3) {
        let stop: String = chars[at..at + 3].iter().collect();
        for depth in 0..=MAX_DEPTH {
            let options = GenerateOptions { stop_strings: vec![stop.clone()], ..greedy(60, depth) };
            let (mut session, _) = open(400);
            let answer = ask(&mut session, &prompt(10), &options);
            assert_eq!(answer, answer_ref(&prompt(10), &options));
            assert_eq!((answer.finish, &answer.text[..]), (Finish::StopString(0), &free[..free.find(&stop).unwrap()]));
            behind_a_draft += usize::from(depth > 0 && session.tokens().len() + 1 == 10 + answer.tokens.len());
        }
    }
    assert!(behind_a_draft > 0);
}

#[test]
fn a_stop_string_may_end_in_the_character_that_the_end_left_unfinished() {
    let mut unfinished = 0;
    for max_tokens in 2..60 {
        let mut options = greedy(max_tokens, 3);
        let free = answer_ref(&prompt(10), &options);
        let given: usize = {
            let mut decoder = tokenizer().stream().hiding_special();
            free.tokens.iter().map(|token| decoder.push(*token).len()).sum()
        };
        let Some(before) = free.text[..given].chars().next_back().filter(|_| given < free.text.len()) else { continue };
        let stop = format!("{before}\u{FFFD}");
        let first = free.text.find(&stop).unwrap();
        if first + stop.len() < free.text.len() {
            continue; // it was complete before
        }
        options.stop_strings = vec![stop];
        let (mut session, _) = open(400);
        let answer = ask(&mut session, &prompt(10), &options);
        assert_eq!((answer.finish, &answer.text[..]), (Finish::StopString(0), &free.text[..first]));
        assert_eq!(answer, answer_ref(&prompt(10), &options));
        unfinished += 1;
    }
    assert!(unfinished > 0);
}

#[test]
fn what_is_held_for_a_stop_string_longer_than_the_answer_comes_with_the_end() {
    let free = answer_ref(&prompt(10), &greedy(20, 0)).text;
    let stop_strings = vec![format!("{free} and more")];
    for (max_tokens, finish) in [(20, Finish::Length), (100, Finish::Cancelled)] {
        let options = GenerateOptions { stop_strings: stop_strings.clone(), ..greedy(max_tokens, 3) };
        let (mut given, mut tokens, mut last) = (String::new(), 0, None);
        let mut sink = |event: GenEvent<'_>| {
            match event {
                GenEvent::Prefilled(_) => {}
                GenEvent::Token { text, .. } => (given, tokens) = (given.clone() + text, tokens + 1),
                GenEvent::End { text, finish } => last = Some((text.to_owned(), finish)),
            }
            if tokens == 20 && max_tokens > 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (mut session, _) = open(400);
        let generation = session.generate(&prompt(10), &options, &CancelFlag::default(), &mut sink).unwrap();
        assert_eq!((given.as_str(), generation.text.as_str()), ("", free.as_str()));
        assert_eq!((last, generation.finish), (Some((free.clone(), finish)), finish));
    }
}

#[test]
fn options_out_of_range_are_refused_by_flag_and_the_session_goes_on() {
    let small = engine_with(Toy::new(true), bytes_vocab());
    let mut session = small.open_session(&SessionOptions { ctx_tokens: 400, snapshots: 0 }).unwrap();
    run(&mut session, &prompt(9), &greedy(5, 2));
    let before = session.tokens().to_vec();
    let refused = |session: &mut Session, options: GenerateOptions| {
        let none = &mut |_: GenEvent<'_>| ControlFlow::Continue(());
        session.generate(&prompt(3), &options, &CancelFlag::default(), none).unwrap_err()
    };
    let bias = |id, value| GenerateOptions { logit_bias: vec![(1, 1.0), (id, value)], ..greedy(5, 2) };
    for value in [100.5, -101.0, f32::NAN, f32::INFINITY] {
        assert!(matches!(refused(&mut session, bias(2, value)), Error::InvalidBias { id: 2, .. }));
    }
    // A row of the output matrix that stands for no token is as unknown as one past its end.
    for id in [256, VOCAB as TokenId, TokenId::MAX] {
        let error = refused(&mut session, bias(id, 1.0));
        assert!(matches!(error, Error::UnknownBiasId { vocab: VOCAB, .. }));
        assert!(error.to_string().contains(&format!("--logit-bias {id}:")));
    }
    let stops = GenerateOptions { stop_strings: vec!["a".into(), String::new()], ..greedy(5, 2) };
    assert!(matches!(refused(&mut session, stops), Error::StopString { .. }));
    let many = GenerateOptions { top_logprobs: Some(MAX_TOP_LOGPROBS + 1), ..greedy(5, 2) };
    assert!(matches!(refused(&mut session, many), Error::InvalidLogprobs { found: 21, max: 20 }));
    assert_eq!(session.tokens(), before);
}
