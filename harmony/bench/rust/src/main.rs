//! Measures one Rust encoder with files in the same way as ../ours/main.go measures
//! package harmony: peers ENCODER FILE...

fn cpu_ms() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn hash(tokens: &[u32]) -> u64 {
    let fnv = |h: u64, &t: &u32| (h ^ t as u64).wrapping_mul(0x100000001b3);
    tokens.iter().fold(0xcbf29ce484222325, fnv)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let start = cpu_ms();
    let encode: Box<dyn Fn(&str) -> Vec<u32>> = match args[1].as_str() {
        "bpe-openai" => {
            let t = bpe_openai::o200k_base();
            Box::new(move |s| t.encode(s))
        }
        "tiktoken-rs" => {
            let t = tiktoken_rs::o200k_base_singleton();
            Box::new(move |s| t.encode_ordinary(s))
        }
        other => panic!("no encoder {other}"),
    };
    encode("x");
    println!("load {:.4}", cpu_ms() - start);
    for path in &args[2..] {
        let text = std::fs::read_to_string(path).unwrap();
        let start = cpu_ms();
        let tokens = encode(&text);
        let took = cpu_ms() - start;
        println!("{} {:.4} {} {:016x}", path, took, tokens.len(), hash(&tokens));
    }
}
