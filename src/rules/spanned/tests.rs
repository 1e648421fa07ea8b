//! The reader keeps lines, gathers faults and knows its bounds.

use super::*;

#[test]
fn lines_and_nesting_are_kept() {
    let node = parse("a: 1\nb:\n  - x\n  - {c: 'null'}\n").unwrap();
    let Value::Mapping(entries) = &node.value else { panic!("{node:?}") };
    assert_eq!((entries[1].key.as_str(), entries[1].line), ("b", 2));
    let Value::Sequence(items) = &entries[1].node.value else { panic!("{node:?}") };
    assert_eq!(items[1].line, 4);
    let Value::Mapping(inner) = &items[1].value else { panic!("{node:?}") };
    assert_eq!(inner[0].node.scalar(), Some("null"));
}

#[test]
fn syntax_errors_name_their_line() {
    let fault = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
    assert!(fault.line >= 2 && fault.says.starts_with("not valid YAML"), "{fault}");
}

#[test]
fn a_second_document_is_refused() {
    assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().line, 3);
}

#[test]
fn aliases_are_expanded_and_bounded() {
    let node = parse("a: &x {k: 1}\nb: *x\n").unwrap();
    let Value::Mapping(entries) = &node.value else { panic!("{node:?}") };
    assert_eq!(entries[0].node.value, entries[1].node.value);
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let of = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{of}]\n"));
    }
    assert!(parse(&bomb).unwrap_err().says.contains("too large"));
}

#[test]
fn a_repeated_key_is_a_fault() {
    let node = parse("a: 1\na: 2\n").unwrap();
    let faults = Faults::default();
    let _fields = Fields::open(&node, "", &faults);
    assert_eq!(faults.into_sorted()[0].to_string(), "line 2: a: given twice");
}
