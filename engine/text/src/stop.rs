//! Stop strings in a text that arrives in pieces.

use crate::Error;

/// Holds back whatever may become a stop string, and finds the first one that does.
///
/// The first is the one that ends first; of those that end at the same character the longest, so that the least is given
/// out. No other rule has one answer for every cut of a stream: which string *begins* first may only be known later.
///
/// Law: however a text is cut into pieces, what [`push`](Self::push) and [`finish`](Self::finish) give out is the text
/// before that string, or all of it where there is none. At any time as little is held back as possible: the longest end of
/// the text so far that a stop string begins with, always shorter than the longest stop string.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    held: String,
}

/// What a piece of text brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// Text that is in no stop string; often empty.
    pub text: String,
    /// The stop string that is now complete, by its index. What follows it in the piece is dropped.
    pub stopped: Option<usize>,
}

impl StopMatcher {
    /// Refuses an empty string, which would end every text before it begins. No strings at all: nothing is held back.
    pub fn new(stops: &[String]) -> Result<Self, Error> {
        if let Some(index) = stops.iter().position(String::is_empty) {
            return Err(Error::EmptyStopString { index, count: stops.len() });
        }
        Ok(Self { stops: stops.iter().map(|text| Stop::new(text)).collect(), held: String::new() })
    }

    /// Takes the next piece and gives out what can no longer become a stop string. After a match the matcher is as new.
    pub fn push(&mut self, piece: &str) -> Released {
        for (at, byte) in piece.bytes().enumerate() {
            if let Some((index, length)) = self.step(byte) {
                // Both ends of a match are ends of characters: the string and the text are UTF-8.
                let mut text = self.finish();
                text.push_str(&piece[..=at]);
                text.truncate(text.len() - length);
                return Released { text, stopped: Some(index) };
            }
        }
        self.held.push_str(piece);
        let waiting = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - waiting);
        Released { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// What was held back, when no more text comes. The matcher is as new.
    pub fn finish(&mut self) -> String {
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
        std::mem::take(&mut self.held)
    }

    /// Index and length of the longest string that this byte completes.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut best = None;
        for (index, stop) in self.stops.iter_mut().enumerate() {
            if stop.step(byte) && best.is_none_or(|(_, length)| length < stop.text.len()) {
                best = Some((index, stop.text.len()));
            }
        }
        best
    }
}

/// One string and how much of it the text ends with (Knuth, Morris, Pratt): a byte costs a constant, however the string
/// repeats itself.
#[derive(Debug, Clone)]
struct Stop {
    text: Vec<u8>,
    /// `borders[n]`: length of the longest proper start of `text[..n]` that also ends it.
    borders: Vec<usize>,
    /// Below `text.len()` between steps.
    matched: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let mut stop = Self { text: text.into(), borders: vec![0; text.len() + 1], matched: 0 };
        for at in 1..text.len() {
            stop.step(stop.text[at]);
            stop.borders[at + 1] = stop.matched;
        }
        stop.matched = 0;
        stop
    }

    /// Whether the string is complete with this byte.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.borders[self.matched];
        }
        if self.text[self.matched] == byte {
            self.matched += 1;
        }
        let complete = self.matched == self.text.len();
        if complete {
            self.matched = self.borders[self.matched];
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// By the words of the documentation, over the whole text.
    fn search_ref(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for (end, _) in text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)) {
            let ends = (0..stops.len()).filter(|index| text[..end].ends_with(&stops[*index]));
            if let Some(index) = ends.max_by_key(|index| (stops[*index].len(), usize::MAX - index)) {
                return (text[..end - stops[index].len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    fn held_ref(text: &str, stops: &[String]) -> usize {
        let starts =
            |at: &usize| stops.iter().any(|stop| stop.len() > text.len() - at && stop.starts_with(&text[*at..]));
        (0..=text.len()).filter(|at| text.is_char_boundary(*at)).find(starts).map_or(0, |at| text.len() - at)
    }

    /// Few letters, two of them of several bytes that share their first, so that near misses and overlaps are common.
    fn word(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['a', 'b', 'é', 'è']), length).prop_map(String::from_iter)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn any_cut_of_a_stream_gives_what_a_search_of_the_whole_text_gives(
            pieces in prop::collection::vec(word(0..5), 0..12),
            stops in prop::collection::vec(word(1..6), 0..4),
        ) {
            let text: String = pieces.concat();
            let (want, found) = search_ref(&text, &stops);
            let mut matcher = StopMatcher::new(&stops).unwrap();
            let (mut got, mut read, mut stopped) = (String::new(), String::new(), None);
            for piece in &pieces {
                let released = matcher.push(piece);
                got.push_str(&released.text);
                read.push_str(piece);
                stopped = released.stopped;
                if stopped.is_some() {
                    break;
                }
                prop_assert_eq!(read.len() - got.len(), held_ref(&read, &stops), "no more and no less is held back");
            }
            if stopped.is_none() {
                got.push_str(&matcher.finish());
            }
            prop_assert_eq!((got, stopped), (want, found));
            prop_assert_eq!(matcher.finish(), "", "as new");
        }
    }

    #[test]
    fn an_empty_string_is_refused_by_its_place() {
        let refused = StopMatcher::new(&strings(&["a", ""])).unwrap_err();
        assert_eq!(refused.to_string(), "stop string 2 of 2 is empty; give at least one character");
        assert_eq!(StopMatcher::new(&[]).unwrap().push("text").text, "text");
    }

    #[test]
    fn the_string_that_ends_first_wins_and_of_two_the_longer() {
        let stopped = |stops: &[&str], text: &str| StopMatcher::new(&strings(stops)).unwrap().push(text);
        assert_eq!(stopped(&["abcd", "bc"], "xabcd"), Released { text: "xa".into(), stopped: Some(1) });
        assert_eq!(stopped(&["b", "ab"], "xab"), Released { text: "x".into(), stopped: Some(1) });
        assert_eq!(stopped(&["b", "b"], "b"), Released { text: String::new(), stopped: Some(0) });
    }

    #[test]
    fn a_string_longer_than_the_text_is_given_out_at_the_end() {
        let mut matcher = StopMatcher::new(&strings(&["the end of the story"])).unwrap();
        assert_eq!(matcher.push("the end").text, "");
        assert_eq!(matcher.finish(), "the end");
    }

    #[test]
    fn a_start_that_does_not_go_on_is_released_and_may_begin_another() {
        let mut matcher = StopMatcher::new(&strings(&["###END"])).unwrap();
        let pieces = ["a#", "###", "EN", "X##", "#END", "never"];
        let released: Vec<_> = pieces.iter().map(|piece| matcher.push(piece)).take(5).collect();
        let texts: Vec<&str> = released.iter().map(|r| &r.text[..]).collect();
        assert_eq!(texts, ["a", "#", "", "###ENX", ""]);
        assert_eq!(released[4].stopped, Some(0));
    }

    #[test]
    fn a_string_that_repeats_itself_costs_a_constant_per_byte() {
        // Without the borders this is 10^10 comparisons.
        let stop = format!("{}b", "a".repeat(100_000));
        let mut matcher = StopMatcher::new(&[stop]).unwrap();
        let given: usize = (0..2000).map(|_| matcher.push(&"a".repeat(100)).text.len()).sum();
        assert_eq!(given, 100_000);
        assert_eq!(matcher.push("ab").stopped, Some(0));
    }
}
