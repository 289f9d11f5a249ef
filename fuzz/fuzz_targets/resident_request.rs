//! Any bytes as what a client sends to a resident engine, and as what a resident engine replies.

#![no_main]

use bench_protocol::{Line, LineReader};
use cuda_engine::resident::dialogue::{Then, answer};
use cuda_engine::resident::{Op, read_answer, write_op};
use cuda_engine::target::Stub;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut stub = Stub::new(2, 8192, &[], "");
    let mut lines = LineReader::new(data);
    while let Ok(line) = lines.read() {
        let text = if let Line::Text(text) = line { text.to_vec() } else { Vec::new() };
        let Some((reply, then)) = answer(&mut stub, 1, line) else { break };
        assert!(reply.ends_with(b"\n") && !reply[..reply.len() - 1].contains(&b'\n'), "a reply is one line");

        let op = Op::parse(&text);
        let wire = if let Ok(op) = &op { op } else { &Op::Bye };
        match read_answer(wire, &reply) {
            Ok(answer) => assert!(answer.is_err() || op.is_ok(), "only what was understood is done"),
            Err(why) => panic!("{why}"),
        }
        if let Ok(op) = &op {
            assert_eq!(Op::parse(write_op(op).trim_ascii_end()).as_ref(), Ok(op));
            // What comes back from a resident is bytes of another process, too.
            let _ = read_answer(op, &text);
        }
        for op in [
            Op::Hello,
            Op::Argmax,
            Op::TopLogits { k: 8 },
            Op::EvalSpeculative { first_token: 1, budget: 2 },
            Op::SpecCounters,
        ] {
            let _ = read_answer(&op, &text);
        }
        if then != Then::Go {
            break;
        }
    }
});
