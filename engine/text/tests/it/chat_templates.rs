//! Whole templates. `testdata/chat-templates/*.jinja` are written for these tests in the forms published templates have; the expected
//! texts in `testdata/chat-templates/*.json` come from Python's jinja2 3.1.6, set up as the reference renderer does it:
//! `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)`, loop controls, `{% generation %}`, and `tojson`
//! replaced by `json.dumps(ensure_ascii=False)`.

use cudafast_text::{ChatTemplate, Error, RenderOptions};
use serde_json::{Map, Value, json};

use crate::fixture::{TINY, TINY_FILE};

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_owned)
}

#[track_caller]
fn renders_all(source: &str, cases: &str) {
    for case in serde_json::from_str::<Vec<Value>>(cases).unwrap() {
        let template = ChatTemplate::new(source).unwrap().with_tokens(text(&case, "bos"), text(&case, "eos"));
        let options = RenderOptions {
            add_generation_prompt: case["gen"].as_bool().unwrap(),
            enable_thinking: case.get("think").and_then(Value::as_bool),
            tools: case.get("tools").cloned(),
            extra: case.get("extra").and_then(Value::as_object).cloned().unwrap_or_default(),
            now_unix_s: None,
        };
        let found = template.render(case["messages"].as_array().unwrap(), &options).unwrap();
        assert_eq!(found, case["expected"].as_str().unwrap(), "{}", case["name"]);
    }
}

#[test]
fn thinking_and_tools_render_as_in_python() {
    renders_all(
        include_str!("../../../../testdata/chat-templates/thinking_tools.jinja"),
        include_str!("../../../../testdata/chat-templates/thinking_tools.json"),
    );
}

#[test]
fn headers_and_indented_tools_render_as_in_python() {
    renders_all(
        include_str!("../../../../testdata/chat-templates/headers.jinja"),
        include_str!("../../../../testdata/chat-templates/headers.json"),
    );
}

#[test]
fn statements_and_white_space_render_as_in_python() {
    renders_all(
        include_str!("../../../../testdata/chat-templates/alternating.jinja"),
        include_str!("../../../../testdata/chat-templates/alternating.json"),
    );
}

fn thinking_tools() -> ChatTemplate {
    ChatTemplate::new(include_str!("../../../../testdata/chat-templates/thinking_tools.jinja")).unwrap()
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

/// Qwen3.8#125: one history, two forms of the same call, one prompt.
#[test]
fn arguments_as_an_object_and_as_a_string_render_the_same() {
    let arguments = json!({"z": "text", "a": {"b": [1, 2.5, null]}, "é": "日本"});
    let history = |arguments: Value, wrapped: bool| {
        let call = json!({"name": "f", "arguments": arguments});
        let call = if wrapped { json!({"type": "function", "function": call}) } else { call };
        vec![user("x"), json!({"role": "assistant", "content": null, "tool_calls": [call]})]
    };
    let prompts: Vec<String> = [true, false]
        .into_iter()
        .flat_map(|wrapped| [history(arguments.clone(), wrapped), history(arguments.to_string().into(), wrapped)])
        .map(|messages| thinking_tools().render(&messages, &RenderOptions::default()).unwrap())
        .collect();
    assert!(prompts[0].contains("<parameter=z>\ntext\n</parameter>\n<parameter=a>\n{\"b\": [1, 2.5, null]}\n"));
    assert!(prompts.iter().all(|prompt| *prompt == prompts[0]), "{prompts:#?}");
}

#[test]
fn arguments_that_hold_no_object_are_left_alone() {
    let template = ChatTemplate::new("{{ messages[0].tool_calls[0].function.arguments }}").unwrap();
    for arguments in ["", "[1, 2]", "{\"a\": ", "\"{}\"", "plain"] {
        let message = json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]});
        assert_eq!(template.render(&[message], &RenderOptions::default()).unwrap(), arguments);
    }
}

/// llama.cpp#27619: whatever a description holds is shown, not run.
#[test]
fn any_description_of_a_tool_is_rendered_as_json() {
    let long = "x".repeat(64 << 10);
    for description in ["(.*)[a-z]+$^\\", "{{ 7 * 7 }}{% raw %}", "a\nb\r\n\t\u{0}", "<|im_end|>'\"`", "", &long] {
        let tool = json!({"type": "function", "function": {"name": "f", "description": description}});
        let options = RenderOptions { tools: Some(json!([tool])), ..Default::default() };
        let prompt = thinking_tools().render(&[user("hi")], &options).unwrap();
        let line = prompt.lines().find(|line| line.starts_with("{\"type\"")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(line).unwrap(), tool);
    }
}

#[test]
fn the_tiny_model_renders_its_two_generation_prompts() {
    let source = TINY_FILE.metadata().str("tokenizer.chat_template").unwrap();
    let template = ChatTemplate::new(source).unwrap();
    let history = "<|im_start|>user\nTell me a story.<|im_end|>\n";
    let render = |enable_thinking, add_generation_prompt| {
        let options = RenderOptions { enable_thinking, add_generation_prompt, ..Default::default() };
        template.render(&[user("Tell me a story.")], &options).unwrap()
    };
    let off = format!("{history}<|im_start|>assistant\n<think>\n\n</think>\n\n");
    assert_eq!(render(Some(true), true), format!("{history}<|im_start|>assistant\n<think>\n"));
    assert_eq!((render(Some(false), true), render(None, true)), (off.clone(), off));
    assert_eq!(render(Some(true), false), history);
    let ids = TINY.encode(&render(Some(false), true), cudafast_text::SpecialTokens::Parse).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id >= 4091).collect::<Vec<_>>(), [&4092, &4093, &4092, &4094, &4095]);
}

#[test]
fn the_clock_can_be_set() {
    let template =
        ChatTemplate::new("{{ strftime_now('%Y %B, %d %b') is string }} {{ strftime_now('%B %Y') }}").unwrap();
    // The middle of a month in every time zone.
    let options = RenderOptions { now_unix_s: Some(1_721_000_000), ..Default::default() };
    assert_eq!(template.render(&[], &options).unwrap(), "True July 2024");
    assert!(template.render(&[], &RenderOptions::default()).unwrap().starts_with("True "));
}

#[test]
fn what_the_caller_leaves_out_is_none_or_undefined() {
    let source = "{{ tools is none }}{{ documents is none }}{{ enable_thinking is defined }}{{ bos_token is defined }}";
    let template = ChatTemplate::new(source).unwrap();
    assert_eq!(template.render(&[], &RenderOptions::default()).unwrap(), "TrueTrueFalseFalse");
    let extra = Map::from_iter([("documents".into(), json!([])), ("enable_thinking".into(), json!(true))]);
    let options = RenderOptions { extra, ..Default::default() };
    assert_eq!(template.render(&[], &options).unwrap(), "TrueFalseTrueFalse");
}

#[test]
fn extra_variables_cannot_replace_those_of_the_engine() {
    let template = ChatTemplate::new("x").unwrap().with_tokens(Some("<s>".into()), None);
    for name in ["messages", "tools", "add_generation_prompt", "enable_thinking", "bos_token"] {
        let extra = Map::from_iter([(name.into(), json!("mine"))]);
        let options = RenderOptions { extra, enable_thinking: Some(true), ..Default::default() };
        let error = template.render(&[], &options).unwrap_err();
        assert!(matches!(&error, Error::ReservedVariable { name: n } if n == name), "{error}");
    }
}

#[test]
fn a_template_that_refuses_is_not_a_template_that_fails() {
    let late_system = [user("hi"), json!({"role": "system", "content": "s"})];
    let error = thinking_tools().render(&late_system, &RenderOptions::default()).unwrap_err();
    assert!(
        matches!(&error, Error::TemplateRefused { line: 74, message } if message == "System message must be at the beginning."),
        "{error}"
    );
    let failing = ChatTemplate::new("a\n\n{{ messages[0].nope.deeper }}").unwrap();
    let error = failing.render(&[user("hi")], &RenderOptions::default()).unwrap_err();
    assert!(matches!(error, Error::TemplateRender { line: 3, .. }), "{error}");
    assert!(error.to_string().contains("`messages[0].nope` is undefined"), "{error}");
}

#[test]
fn a_broken_template_names_its_line() {
    for (source, line) in
        [("{% if x %}", 1), ("a\nb\n{{ x", 3), ("a\r\n{% bad %}", 2), ("\n\n\n{% endfor %}", 4), ("{{ 'a' | }}", 1)]
    {
        let error = ChatTemplate::new(source).unwrap_err();
        assert!(matches!(error, Error::TemplateSyntax { line: l, .. } if l == line), "{source:?}: {error}");
    }
    for source in
        ["x\n{{ 'a' | nofilter }}", "x\n{{ 'a' is notest }}", "x\n{{ nofunction() }}", "x\n{{ 'a'.nomethod() }}"]
    {
        let error = ChatTemplate::new(source).and_then(|t| t.render(&[], &RenderOptions::default())).unwrap_err();
        assert!(error.to_string().contains("line 2") && error.to_string().contains("no"), "{error}");
    }
}

#[test]
fn messages_must_be_objects() {
    for (message, found) in [(json!("hi"), "a string"), (json!(null), "null"), (json!([]), "an array")] {
        let error = thinking_tools().render(&[user("a"), message], &RenderOptions::default()).unwrap_err();
        assert!(matches!(error, Error::BadMessage { index: 1, found: f } if f == found), "{error}");
    }
}
