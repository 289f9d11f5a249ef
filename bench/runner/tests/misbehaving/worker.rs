//! The worker: honest, but for the one thing that `--cheat` names.

use std::fs;
use std::io::{self, BufRead, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use bench_protocol::{ExpertStats, Hello, Request, ResidentIdentity, Response, SpecConfig, TopLogit};
use bench_runner::{Interrupt, Launch, WorkerEnvironment};

/// What the worker computes for a prompt or behind a token.
pub(crate) fn follows(tokens: &[i64]) -> i64 {
    tokens.iter().fold(17, |state, token| (state * 31 + token + 7) % 1000)
}

pub(crate) fn launch(cheat: &str) -> Launch {
    let environment = WorkerEnvironment::from_parent(std::env::vars_os());
    let mut launch = Launch::new(std::env::current_exe().unwrap(), environment, Interrupt::new().unwrap());
    launch.args = ["--cheat", cheat].map(Into::into).into();
    launch
}

/// Adds an argument pair.
pub(crate) fn with(mut launch: Launch, flag: &str, value: impl ToString) -> Launch {
    launch.args.extend([flag.into(), value.to_string().into()]);
    launch
}

struct Worker {
    cheat: String,
    prefill: Duration,
    round: Duration,
    pending: Duration,
    last: i64,
    work: u64,
    depth: u32,
    /// Whether the prompt is the scored one, whose ids ascend.
    is_known: bool,
}

pub(crate) fn flag(args: &[String], name: &str) -> Option<String> {
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned()
}

pub(crate) fn play(args: &[String]) -> ExitCode {
    let cheat = flag(args, "--cheat").unwrap_or_default();
    let micros = |name: &str| Duration::from_micros(flag(args, name).map_or(0, |text| text.parse().unwrap()));
    let mut worker = Worker {
        prefill: micros("--prefill-us"),
        round: micros("--round-us"),
        pending: Duration::ZERO,
        last: 0,
        work: 0,
        depth: 0,
        is_known: false,
        cheat,
    };
    worker.serve()
}

fn say(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).unwrap_or_else(|_| std::process::exit(3));
}

impl Worker {
    fn is(&self, cheat: &str) -> bool {
        self.cheat == cheat
    }

    /// `die-hello`, `die-prefill` and so on: without a word, just where the answer belongs.
    fn die_at(&self, step: &str) {
        if self.cheat.strip_prefix("die-") == Some(step) {
            eprintln!("about to fail: expected 501");
            std::process::abort();
        }
        if self.cheat.strip_prefix("hang-") == Some(step) {
            sleep(Duration::from_secs(3600));
        }
    }

    fn serve(&mut self) -> ExitCode {
        self.die_at("hello");
        let hello = Hello {
            nonce: "5f1c0e77a2b94d10".into(),
            backend: "test".into(),
            device: "none".into(),
            capabilities: if self.is("no-free-run") { Vec::new() } else { vec!["free_run_decode".into()] },
            spec_modes: if self.is("no-mtp") { vec!["serial".into()] } else { vec!["serial".into(), "mtp".into()] },
            resident: self.is("new-resident").then(|| {
                let pid = std::process::id();
                ResidentIdentity { pid, load_epoch: pid.into() }
            }),
            ..Hello::default()
        };
        let mut hello = hello.into_response();
        if self.is("hello-version") {
            hello.protocol_version = Some(2);
        }
        say(b"noise before hello\n");
        say(&hello.to_line().unwrap());
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return ExitCode::FAILURE };
            let request: Request = Request::parse(line.as_bytes()).unwrap();
            self.die_at(&request.kind);
            self.answer(&request);
        }
        self.die_at("end");
        if self.is("bad-end") { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn answer(&mut self, request: &Request) {
        let mut response = Response::ok(request.id, "5f1c0e77a2b94d10");
        self.fill(request, &mut response);
        match self.cheat.as_str() {
            "nonce" => response.nonce = Some("another".into()),
            "id" => response.id += 1,
            "refuse" => response = Response::failed(request.id, "5f1c0e77a2b94d10", "out of memory"),
            "unreadable" => response = Response::failed(-1, "", "request line was not a valid WorkerRequest: x"),
            "late" => sleep(Duration::from_secs(3600)),
            "short-logits" => response.top_logits.iter_mut().for_each(|list| list.truncate(7)),
            "no-token" => response.token = None,
            _ => {}
        }
        let line = response.to_line().unwrap();
        match self.cheat.as_str() {
            "forged-time" => {
                let text = String::from_utf8(line).unwrap();
                say(text.replace("\"ok\":true", "\"ok\":true,\"elapsed_seconds\":0.000001").as_bytes());
            }
            "long-line" => {
                say(&vec![b'{'; 20_000_000]);
                say(b"\n");
            }
            "stdout-flood" => loop {
                say(&b"not a response\n".repeat(4096));
            },
            "stderr-flood" => {
                let _ = io::stderr().write_all(&b"all is well\n".repeat(2 << 20));
                say(&line);
            }
            "cut" => say(&line[..line.len() / 2]),
            "two-answers" => say(&[&line[..], &line[..]].concat()),
            "early" => {
                let next = Response { token: Some(1), ..Response::ok(request.id + 1, "5f1c0e77a2b94d10") };
                say(&[&line[..], &next.to_line().unwrap()[..]].concat());
            }
            _ => say(&line),
        }
    }

    fn fill(&mut self, request: &Request, response: &mut Response) {
        let prompt = request.prompt_tokens.as_ref().or(request.seed_tokens.as_ref());
        if let Some(prompt) = prompt {
            self.last = follows(prompt);
            self.is_known = prompt.is_sorted();
            self.work = 0;
        }
        match request.kind.as_str() {
            "prefill" => {
                sleep(self.prefill_time());
                response.token = Some(self.last + i64::from(self.is("wrong-prefill")));
            }
            "correctness_begin" | "correctness_step" => {
                self.last = request.token.map_or(self.last, |token| follows(&[token]));
                self.work += 1;
                response.token = Some(self.last);
                let entry = |at: i64| TopLogit { token: self.last + at, logit: 10.0 - at as f64 };
                response.top_logits = Some((0..8).map(entry).collect());
                response.expert_stats = Some(ExpertStats { expert_read_seconds: 1e-9, ..ExpertStats::default() });
                response.peak_ram_gb = Some(1.0);
            }
            "correctness" => {
                response.tokens = Some(self.run(request.steps.unwrap() as usize));
                response.peak_ram_gb = Some(1.0);
            }
            "free_decode_begin" => {
                if self.is("defer-prefill") {
                    self.pending = self.prefill
                } else {
                    sleep(self.prefill)
                }
                self.work = 1;
                self.depth = request.spec.as_ref().and_then(|spec| spec.mtp.as_ref()?.depth).unwrap_or(0);
                response.seed_token = Some(self.last);
                let echo = |depth| if depth == 0 { SpecConfig::serial() } else { SpecConfig::mtp(Some(depth)) };
                response.effective_spec = Some(echo(self.depth + u32::from(self.is("wrong-depth"))));
            }
            "free_decode_run" => {
                sleep(std::mem::take(&mut self.pending));
                self.free_run(request.count.unwrap(), response);
            }
            "phase_diagnostics" => {
                response.expert_stats = Some(ExpertStats::default());
                response.peak_ram_gb = Some(if self.is("held") { probe() } else { 1.0 });
                response.completed_work = Some(self.work + u64::from(self.is("more-work")));
                response.cache_memory = self.is("not-drained").then_some(4096);
            }
            other => panic!("{other}"),
        }
    }

    /// Nothing for a prompt whose answer is remembered.
    fn prefill_time(&self) -> Duration {
        if self.is("cached-prefill") && self.is_known { Duration::ZERO } else { self.prefill }
    }

    fn run(&mut self, count: usize) -> Vec<i64> {
        let mut tokens = vec![self.last];
        while tokens.len() < count + 1 {
            tokens.push(follows(&tokens[tokens.len() - 1..]));
        }
        tokens.split_off(1)
    }

    fn free_run(&mut self, count: u32, response: &mut Response) {
        let mut tokens = self.run(count as usize);
        let most = self.depth + 1;
        let mut lengths = vec![most; (count / most) as usize];
        lengths.extend(Some(count % most).filter(|rest| *rest > 0));
        if !(self.is("cached-decode") && self.is_known) {
            sleep(self.round * lengths.len() as u32);
        }
        let drafted = u64::from(self.depth) * lengths.len() as u64;
        self.work += lengths.len() as u64;
        match self.cheat.as_str() {
            "short-run" => tokens.truncate(count as usize - 1),
            "wrong-tokens" => tokens.iter_mut().step_by(2).for_each(|token| *token += 1),
            "wrong-lengths" => lengths.push(1),
            _ => {}
        }
        response.tokens = Some(tokens);
        response.drafted_total = Some(drafted);
        response.accepted_total = Some(u64::from(count) - lengths.len().min(count as usize) as u64);
        response.acceptance_lengths = Some(lengths);
        response.committed_total = Some(u64::from(count));
    }
}

/// What a worker in a sandbox still can do, as bits of a number; its files are named by variables.
fn probe() -> f64 {
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let can = [
        fs::read(path("BENCH_WORKER_SECRET")).is_ok(),
        fs::write(path("BENCH_WORKER_OUT"), "memo").is_ok(),
        Command::new("/bin/true").status().is_ok(),
        TcpStream::connect("127.0.0.1:9").is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied),
        rustix::process::setsid().is_ok(),
        std::thread::spawn(|| ()).join().is_err(),
        fs::read(path("BENCH_WORKER_GIVEN")).is_err(),
        std::env::var_os("GIT_DIR").is_some() || std::env::var_os("MLXFAST_COMMIT_SHA").is_some(),
    ];
    can.iter().enumerate().map(|(bit, &can)| f64::from(u32::from(can) << bit)).sum()
}
