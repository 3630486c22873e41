use super::*;

fn sink(name: &str, kind: &str, state: SinkState, numbers: [u64; 3], ms: u64) -> SinkView {
    let [delivered, repeated, behind] = numbers;
    let (name, kind, lag) = (name.to_owned(), kind.to_owned(), Duration::from_millis(ms));
    SinkView { name, kind, state, delivered, repeated, behind, lag }
}

fn picture() -> Picture {
    Picture {
        uptime: Duration::from_secs(72),
        source: SourceView { written: 12_408, rate: 249.6, watches: 1 },
        bridge: BridgeView { state: BridgeState::Running, kills: 1 },
        sinks: vec![
            sink("audit", "kafka", SinkState::Live, [12_401, 38, 7], 12),
            sink("otel", "otlp", SinkState::CatchingUp, [9_120, 0, 3_288], 12_910),
            sink("pager", "webhook", SinkState::Retrying, [904, 0, 1_234_567], 75_000),
        ],
        scene: Some("pager answers 503 for 8 s; its events wait in the journal".to_owned()),
        stories: vec![
            "14:03:11  shop/web rolls out registry.example.com/shop/web:1.4.2".to_owned(),
            "14:03:12  payments/ledger-7d4b9c6f5-x2x8z asks for an image that is not there \
             and waits"
                .to_owned(),
        ],
    }
}

#[test]
fn the_picture_is_aligned_and_fits() {
    let lines = render(&picture(), Style::Plain);
    assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
    insta::assert_snapshot!(lines.join("\n"), @r"
    tidings demo                                                             up 1:12

    API server   12 408 events written, 250/s, 1 watch
    bridge       running; killed once so far

    sink         kind     state              arrived  repeated     behind       lag
    audit        kafka    live                12 401        38          7     12 ms
    otel         otlp     catching up          9 120         0      3 288    12.9 s
    pager        webhook  retrying               904         0  1 234 567      1:15

    now          pager answers 503 for 8 s; its events wait in the journal

      14:03:11  shop/web rolls out registry.example.com/shop/web:1.4.2
      14:03:12  payments/ledger-7d4b9c6f5-x2x8z asks for an image that is not there…
    ");
}

#[test]
fn a_picture_of_nothing_yet() {
    insta::assert_snapshot!(render(&Picture::default(), Style::Plain).join("\n"), @r"
    tidings demo                                                             up 0:00

    API server   0 events written, 0/s, 0 watches
    bridge       starting

    sink         kind     state              arrived  repeated     behind       lag

    now          starting
    ");
}

#[test]
fn colour_only_repeats_what_words_say() {
    let plain = render(&picture(), Style::Plain);
    let stripped: Vec<String> = render(&picture(), Style::Ansi)
        .iter()
        .map(|line| {
            ["1", "2", "0"]
                .iter()
                .fold(line.clone(), |line, code| line.replace(&format!("\u{1b}[{code}m"), ""))
        })
        .collect();
    assert_eq!(stripped, plain);
    assert_eq!(Style::of(true, None), Style::Ansi);
    assert_eq!(Style::of(true, Some("")), Style::Ansi);
    assert_eq!(Style::of(true, Some("1")), Style::Plain);
    assert_eq!(Style::of(false, None), Style::Plain);
}

#[test]
fn one_line_says_it_too() {
    assert_eq!(
        line(&picture()),
        "1:12 written 12408 250/s | audit live 12401 repeated 38 behind 7 lag 12 ms \
         | otel catching up 9120 behind 3288 lag 12.9 s \
         | pager retrying 904 behind 1234567 lag 1:15 \
         | pager answers 503 for 8 s; its events wait in the journal"
    );
    let killed = BridgeView { state: BridgeState::Killed, kills: 1 };
    let picture = Picture { bridge: killed, ..Picture::default() };
    assert_eq!(line(&picture), "0:00 written 0 0/s | bridge down; killed once so far");
}

#[test]
fn a_picture_is_drawn_over_the_one_before() {
    let lines = ["a".to_owned(), "b".to_owned()];
    assert_eq!(redraw(0, &lines), "\ra\u{1b}[K\n\rb\u{1b}[K\n\u{1b}[J");
    assert!(redraw(3, &lines).starts_with("\u{1b}[3A\ra"));
}
