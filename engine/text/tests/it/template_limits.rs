//! A template comes with a model file and is not to be trusted: it may fail, but its loops, its output and its recursion
//! must neither hang, nor exhaust memory, nor end the process.

use std::time::{Duration, Instant};

use cudafast_text::{ChatTemplate, Error, RenderOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

fn render(source: &str) -> Result<String, Error> {
    let start = Instant::now();
    let result = ChatTemplate::new(source).and_then(|template| template.render(&[], &RenderOptions::default()));
    assert!(start.elapsed() < Duration::from_secs(30), "{source:.80}: {:?}", start.elapsed());
    result
}

#[track_caller]
fn runs_out_of_fuel(source: &str) {
    let result = render(source).map(|text| text.len());
    assert!(matches!(result, Err(Error::TemplateFuel { .. })), "{source}: {result:?}");
}

#[test]
fn endless_loops_are_stopped() {
    runs_out_of_fuel("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
    runs_out_of_fuel("{% for a in range(1000) %}{% set y = range(99999) | sort %}{% endfor %}");
}

#[test]
fn text_that_multiplies_is_stopped() {
    let doubling =
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    runs_out_of_fuel(doubling);
    let big = "{% set x = 'a' * 1000000 %}";
    for rest in [
        "{% for i in range(99999) %}{{ x }}{% endfor %}",
        "{{ x.replace('a', x) }}",
        "{{ x | replace('a', x) }}",
        "{{ x.join(range(99999)) }}",
        "{{ range(99999) | join(x) }}",
        "{{ ('a\n' * 99999) | indent(x) }}",
        "{{ range(99999) | list | tojson(separators=(x, x)) }}",
        "{{ range(99999) | list | tojson(indent=x) }}",
        "{{ 'a'.center(1000000000000) }}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ '%1000000000d' | format(1) }}",
    ] {
        runs_out_of_fuel(&format!("{big}{rest}"));
    }
    assert!(matches!(render("{{ '{:>1000000000}'.format('a') }}"), Err(Error::TemplateRender { .. })));
}

#[test]
fn searching_is_not_free() {
    for method in ["split()", "rsplit('b', 1)", "count('ab')", "strip()", "splitlines()", "find('b')", "isspace()"] {
        runs_out_of_fuel(&format!(
            "{{% set x = ' ' * 1000000 %}}{{% for i in range(99999) %}}{{% set y = x.{method} %}}{{% endfor %}}"
        ));
    }
}

#[test]
fn lists_that_share_their_items_are_not_printed_in_full() {
    let sharing = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    for rest in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ ns.x | trim }}"] {
        runs_out_of_fuel(&format!("{sharing}{rest}"));
    }
}

#[test]
fn deep_recursion_is_refused() {
    let error = render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}\n{{ m(0) }}").unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
    for (open, close) in [("(", ")"), ("[", "]"), ("{% if 1 %}", "{% endif %}"), ("{% for x in [1] %}", "{% endfor %}")]
    {
        let nested = if open.starts_with('{') {
            open.repeat(4000) + &close.repeat(4000)
        } else {
            format!("{{{{ {}1{} }}}}", open.repeat(20_000), close.repeat(20_000))
        };
        assert!(matches!(render(&nested), Err(Error::TemplateSyntax { .. })), "{open}");
    }
}

#[test]
fn long_chains_of_operators_do_not_end_the_process() {
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "not ".repeat(30_000))).unwrap(), "True");
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "-".repeat(30_000))).unwrap(), "1");
    assert_eq!(
        render(&format!("{{% if 0 %}}{}{{% else %}}x{{% endif %}}", "{% elif 0 %}".repeat(9_000))).unwrap(),
        "x"
    );
    assert_eq!(render(&format!("{{{{ 1{} }}}}", "+1".repeat(5_000))).unwrap(), "5001");
}

#[test]
fn deep_values_do_not_end_the_process() {
    let nest = |rest: &str| {
        format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(99999) %}}{{% set ns.x = [ns.x] %}}{{% endfor %}}{rest}"
        )
    };
    assert_eq!(render(&nest("{{ ns.x | length }}")).unwrap(), "1");
    for rest in ["{{ ns.x }}", "{{ ns.x | tojson }}"] {
        let error = render(&nest(rest)).unwrap_err().to_string();
        assert!(error.contains("nested deeper than 128 levels"), "{error}");
    }
    assert_eq!(render("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x.x.x is defined }}").unwrap(), "True");
}

#[test]
fn an_enormous_template_is_refused() {
    let error = ChatTemplate::new(&"a".repeat(200_000)).unwrap_err();
    assert!(matches!(error, Error::TemplateTooLong { bytes: 200_000, .. }), "{error}");
}

#[test]
fn deep_messages_are_refused() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let template = ChatTemplate::new("{{ messages | tojson | length }}").unwrap();
    let message = |levels: usize| [json!({"role": "user", "content": deep(levels)})];
    assert!(template.render(&message(100), &RenderOptions::default()).is_ok());
    for levels in [126, 200, 1000] {
        let error = template.render(&message(levels), &RenderOptions::default()).unwrap_err();
        assert!(matches!(&error, Error::TooDeep { place, .. } if place == "messages"), "{error}");
    }
    let options = RenderOptions { tools: Some(deep(200)), ..Default::default() };
    assert!(matches!(template.render(&[], &options), Err(Error::TooDeep { place, .. }) if place == "tools"));
}

/// The allowance must not bite where it should not: 8,000 turns through the largest template of these tests.
#[test]
fn a_very_long_conversation_renders() {
    let template = ChatTemplate::new(include_str!("../../../../testdata/chat-templates/thinking_tools.jinja")).unwrap();
    let turn = |i: usize| -> [Value; 2] {
        let call = json!({"function": {"name": "f", "arguments": {"n": i, "s": "x"}}});
        [json!({"role": "user", "content": "q"}), json!({"role": "assistant", "content": "a", "tool_calls": [call]})]
    };
    let messages: Vec<Value> = (0..4000).flat_map(turn).collect();
    let prompt = template.render(&messages, &RenderOptions::default()).unwrap();
    assert_eq!(prompt.matches("<tool_call>").count(), 4000);
    let long = [json!({"role": "user", "content": "word ".repeat(1 << 20)})];
    assert!(template.render(&long, &RenderOptions::default()).unwrap().len() > 5 << 20);
}

/// Pieces of templates, whole and broken, with the values that built-ins like least.
fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "{%- ",
        " -%}",
        "{# ",
        " #}",
        "if x",
        "endif",
        "else",
        "for i in x",
        "endfor",
        "set x = ",
        "macro m(x)",
        "endmacro",
        "m(x)",
        "generation",
        "endgeneration",
        "raw",
        "endraw",
        "break",
        "continue",
        "x",
        "i",
        "loop",
        ".x",
        "[0]",
        "[-1]",
        "[::-1]",
        "[1:x]",
        "['x']",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "'a'",
        "'\\u12'",
        "\"",
        "é",
        "😀",
        "1",
        "-1",
        "0",
        "1.5",
        "1e308",
        "99999999999999999999",
        "9223372036854775807",
        "none",
        "true",
        " + ",
        " - ",
        " * ",
        " / ",
        " // ",
        " % ",
        " ** ",
        " ~ ",
        " == ",
        " < ",
        " in ",
        " not ",
        " and ",
        " is ",
        "defined",
        "mapping",
        "|tojson",
        "|tojson(indent=-1)",
        "|indent(-5)",
        "|int",
        "|round(-400)",
        "|batch(0)",
        "|slice(0)",
        "|join(x)",
        "|sort",
        "|trim('')",
        "|list",
        "|replace('','x')",
        "|truncate(0)",
        "|center",
        "|dictsort",
        "|format(x)",
        ".split('')",
        ".split()",
        ".rsplit('a', -1)",
        ".strip('')",
        ".center(x)",
        ".zfill(3)",
        ".find('', -9, 9)",
        ".count('')",
        ".title()",
        ".items()",
        ".get(x)",
        ".format(x)",
        ".partition('a')",
        ".splitlines(1)",
        "range(-3)",
        "range(1, 9, 0)",
        "namespace(x=1)",
        "strftime_now('%Y%Q%')",
        "messages",
        "messages[0]",
        "raise_exception(x)",
        "\n",
        " ",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_template_gives_text_or_an_error(
        source in prop::collection::vec(fragment(), 0..12).prop_map(|parts| parts.concat()),
        expression in prop::collection::vec(fragment(), 1..5).prop_map(|parts| parts.concat()),
        x in prop::sample::select(vec![json!("aXa é\n"), json!(-3), json!([1, "b", null]), json!({"x": {"a": 1.5}}), json!(null)]),
    ) {
        let messages = [json!({"role": "user", "content": "hi"})];
        let options = RenderOptions { extra: [("x".to_owned(), x)].into_iter().collect(), ..Default::default() };
        for source in [source, format!("{{{{ x{expression} }}}}"), format!("{{{{ {expression} }}}}")] {
            if let Err(error) = ChatTemplate::new(&source).and_then(|template| template.render(&messages, &options)) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
