//! Measures one Rust library with files in the same way as ../ours/main.go measures
//! package harmony:
//!
//!     peers LIBRARY TASK FILE...
//!
//! Tasks are encode, and for openai-harmony parse, render and render-messages. The
//! vocabulary that libraries would download is in TIKTOKEN_ENCODINGS_BASE.

use openai_harmony::chat::{Conversation, Role};
use openai_harmony::{load_harmony_encoding, HarmonyEncoding, HarmonyEncodingName, StreamableParser};
use std::hint::black_box;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a task did with a file: the CPU time in milliseconds, the number of tokens and
/// a hash of the result.
struct Done {
    took: f64,
    tokens: usize,
    hash: u64,
}

type Task = Box<dyn Fn(&str) -> Result<Done>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, library, task, files @ ..] = args.as_slice() else {
        return Err("usage: peers LIBRARY encode|parse|render|render-messages FILE...".into());
    };

    // The first encoding includes what a library does at its start.
    let start = cpu_ms();
    let run = prepare(library, task)?;
    println!("load {:.4}", cpu_ms() - start);

    for path in files {
        let done = run(&std::fs::read_to_string(path)?)?;
        println!("{path} {:.4} {} {:016x}", done.took, done.tokens, done.hash);
    }
    Ok(())
}

/// Loads a library, has it encode a letter, and returns the task.
fn prepare(library: &str, task: &str) -> Result<Task> {
    match (library, task) {
        ("bpe-openai", "encode") => {
            let t = bpe_openai::o200k_base();
            encoder(move |s| t.encode(s))
        }
        ("fastokens", "encode") => {
            let path = std::path::Path::new(&std::env::var("TIKTOKEN_ENCODINGS_BASE")?).join("o200k_base.tiktoken");
            let t = fastokens::Tokenizer::from_tiktoken_file(&path, fastokens::TiktokenConfig::o200k_base())?;
            encoder(move |s| t.encode_ordinary(s).expect("encoding has no errors"))
        }
        ("tiktoken-rs", "encode") => {
            let t = tiktoken_rs::o200k_base_singleton();
            encoder(move |s| t.encode_ordinary(s))
        }
        ("openai-harmony", task) => reference(task),
        _ => Err(format!("no task {task} of {library}").into()),
    }
}

fn reference(task: &str) -> Result<Task> {
    let harmony = load_harmony_encoding(HarmonyEncodingName::HarmonyGptOss)?;
    harmony.tokenizer().encode_ordinary("x");

    match task {
        "encode" => encoder(move |s| harmony.tokenizer().encode_ordinary(s)),
        "parse" => Ok(Box::new(move |text| parse(&harmony, text))),
        // The file is a conversation in JSON.
        "render" => Ok(Box::new(move |text| {
            let (tokens, took) = timed(|| render(&harmony, &serde_json::from_str(text)?));
            rendered(tokens?, took)
        })),
        // The same without parsing the JSON.
        "render-messages" => Ok(Box::new(move |text| {
            let conversation = serde_json::from_str(text)?;
            let (tokens, took) = timed(|| render(&harmony, &conversation));
            rendered(tokens?, took)
        })),
        other => Err(format!("no task {other}").into()),
    }
}

/// Returns the task of a function that encodes.
fn encoder(encode: impl Fn(&str) -> Vec<u32> + 'static) -> Result<Task> {
    encode("x");
    Ok(Box::new(move |text| {
        let (tokens, took) = timed(|| encode(text));
        rendered(tokens, took)
    }))
}

fn render(harmony: &HarmonyEncoding, conversation: &Conversation) -> Result<Vec<u32>> {
    Ok(harmony.render_conversation_for_completion(conversation, Role::Assistant, None)?)
}

fn rendered(tokens: Vec<u32>, took: f64) -> Result<Done> {
    let hash = fnv(OFFSET, tokens.iter().map(|&t| t as u64));
    Ok(Done { took, tokens: tokens.len(), hash })
}

/// Parses lists of tokens like a server: it reads the delta, channel and recipient after
/// each token.
fn parse(harmony: &HarmonyEncoding, text: &str) -> Result<Done> {
    let completions: Vec<Vec<u32>> = serde_json::from_str(text)?;
    let parsers = || -> Result<Vec<StreamableParser>> {
        let one = |_| Ok(StreamableParser::new(harmony.clone(), Some(Role::Assistant))?);
        completions.iter().map(one).collect()
    };

    let mut new = parsers()?;
    let (read, took) = timed(|| -> Result<()> {
        for (parser, tokens) in new.iter_mut().zip(&completions) {
            for &token in tokens {
                parser.process(token)?;
                // A compiler must not find out that nothing uses the result.
                black_box((parser.last_content_delta()?, parser.current_channel(), parser.current_recipient()));
            }
        }
        Ok(())
    });
    read?;

    // The hash is of a second pass, so that its time is not measured.
    let mut hash = OFFSET;
    for (parser, tokens) in parsers()?.iter_mut().zip(&completions) {
        for &token in tokens {
            parser.process(token)?;
            for s in [parser.last_content_delta()?, parser.current_channel(), parser.current_recipient()] {
                hash = fnv(hash, s.unwrap_or_default().bytes().map(u64::from));
                // A byte that no UTF-8 has keeps the fields apart.
                hash = fnv(hash, [0xff]);
            }
        }
    }
    Ok(Done { took, tokens: completions.iter().map(Vec::len).sum(), hash })
}

const OFFSET: u64 = 0xcbf29ce484222325;

fn fnv(hash: u64, values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(hash, |h, v| (h ^ v).wrapping_mul(0x100000001b3))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = cpu_ms();
    let result = work();
    (result, cpu_ms() - start)
}

/// The CPU time of the process in milliseconds.
fn cpu_ms() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and t is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}
