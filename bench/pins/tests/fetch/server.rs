//! A source of files that can be told to misbehave. It answers on this machine, one connection a thread.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a request was, in the words of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// `bytes=N-`.
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// How a file is answered.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// As it should be, ranges too.
    Honest,
    /// The connection ends after so many bytes of the body, every time.
    DropAfter(usize),
    /// Other bytes of the same number.
    OtherBytes,
    /// Announces and sends so many bytes more.
    Longer(usize),
    /// Announces more than it has and ends.
    AnnounceMore(usize),
    /// Says nothing of its length and sends so many bytes more.
    EndlessBy(usize),
    /// The whole file, whatever part was asked for.
    WholeOnly,
    /// Another part than the one asked for.
    OtherPart,
    /// No part at all: 416.
    NoPart,
    /// To another address.
    Redirect(String),
    /// Nothing but a status.
    Status(u16),
    /// Once as the first, then as the second.
    Then(Box<Answer>, Box<Answer>),
}

pub(crate) struct Server {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, (Vec<u8>, Answer)>,
    asked: Vec<Asked>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8], answer: Answer) {
        self.state.lock().unwrap().files.insert(path.to_owned(), (bytes.to_vec(), answer));
    }

    /// What was asked since the last time.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut asked = Asked { path: path.clone(), range: None, authorization: None };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "range" => asked.range = Some(value.trim().to_owned()),
                "authorization" => asked.authorization = Some(value.trim().to_owned()),
                _ => {}
            }
        }
    }
    let from = asked.range.as_ref().and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let plain = path.split('?').next().unwrap_or_default().to_owned();
    let found = {
        let mut state = state.lock().unwrap();
        state.asked.push(asked);
        match state.files.get_mut(&plain) {
            None => None,
            Some((bytes, answer)) => {
                let (now, next) = match answer.clone() {
                    Answer::Then(first, second) => (*first, *second),
                    one => (one.clone(), one),
                };
                *answer = next;
                Some((bytes.clone(), now))
            }
        }
    };
    let (bytes, answer) = found.unwrap_or_else(|| (Vec::new(), Answer::Status(404)));
    reply(stream, &bytes, answer, from)
}

fn reply(mut to: TcpStream, bytes: &[u8], answer: Answer, from: Option<usize>) -> std::io::Result<()> {
    let all = bytes.len();
    let whole = |to: &mut TcpStream, announced: usize| {
        write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\nConnection: close\r\n\r\n")
    };
    let part = |to: &mut TcpStream, from: usize| {
        let (left, last) = (all - from, all - 1);
        write!(to, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{last}/{all}\r\n")?;
        write!(to, "Content-Length: {left}\r\nConnection: close\r\n\r\n")
    };
    match (answer, from) {
        (Answer::Honest, None) | (Answer::WholeOnly, _) => {
            whole(&mut to, all)?;
            to.write_all(bytes)
        }
        (Answer::Honest, Some(from)) => {
            part(&mut to, from)?;
            to.write_all(&bytes[from..])
        }
        (Answer::DropAfter(count), None) => {
            whole(&mut to, all)?;
            to.write_all(&bytes[..count.min(all)])
        }
        (Answer::DropAfter(count), Some(from)) => {
            part(&mut to, from)?;
            to.write_all(&bytes[from..(from + count).min(all)])
        }
        (Answer::OtherBytes, from) => {
            let other: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
            reply(to, &other, Answer::Honest, from)
        }
        (Answer::Longer(more), _) => {
            whole(&mut to, all + more)?;
            to.write_all(&[bytes, &vec![7; more]].concat())
        }
        (Answer::AnnounceMore(more), _) => {
            whole(&mut to, all + more)?;
            to.write_all(bytes)
        }
        (Answer::EndlessBy(more), _) => {
            write!(to, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            to.write_all(&[bytes, &vec![7; more]].concat())
        }
        (Answer::OtherPart, Some(from)) => {
            part(&mut to, from + 1)?;
            to.write_all(&bytes[from + 1..])
        }
        (Answer::NoPart, Some(_)) => write!(to, "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        (Answer::OtherPart | Answer::NoPart, None) => reply(to, bytes, Answer::Honest, None),
        (Answer::Redirect(location), _) => {
            write!(to, "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        (Answer::Status(status), _) => {
            write!(to, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        (Answer::Then(first, _), from) => reply(to, bytes, *first, from),
    }
}
