//! A server on tokio: connections come and go, each asks for documents that are made of many strings, and a session's
//! last ones are kept while it lasts. A day of it: few clients, many, few again; then nobody.
// SPDX-License-Identifier: MIT

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const HOURS: [u64; 6] = [4, 24, 64, 64, 8, 2];
const REQUESTS: u64 = 100;
const SEEN: usize = 40;
const REST: Duration = Duration::from_millis(700);

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}

/// A document of the number: fields of very different lengths, as text.
fn document(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let fields = 10 + random(&mut state) % if number % 50 == 0 { 800 } else { 60 };
    let mut map = BTreeMap::new();
    for field in 0..fields {
        let text = "x".repeat((random(&mut state) % 400) as usize);
        map.insert(format!("field {field}"), format!("{text} {}", random(&mut state) % 1000));
    }
    map.iter().map(|(key, value)| format!("\"{key}\":\"{value}\"")).collect::<Vec<_>>().join(",")
}

/// Answers a session's requests, a number on each line, by the length and the document.
async fn session(stream: TcpStream) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.next_line().await? {
        let text = document(line.parse().unwrap());
        writer.write_all(format!("{}\n", text.len()).as_bytes()).await?;
        writer.write_all(text.as_bytes()).await?;
        seen.push(text);
        if seen.len() > SEEN {
            seen.swap_remove(seen.len() / 2);
        }
    }
    Ok(())
}

async fn client(address: std::net::SocketAddr, first: u64) -> std::io::Result<u64> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    let mut bytes = 0;
    for number in first..first + REQUESTS {
        stream.write_all(format!("{number}\n").as_bytes()).await?;
        let mut head = String::new();
        stream.read_line(&mut head).await?;
        let mut text = vec![0; head.trim().parse().unwrap()];
        stream.read_exact(&mut text).await?;
        bytes += text.len() as u64;
    }
    Ok(bytes)
}

async fn day() -> std::io::Result<u64> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(session(stream));
        }
    });
    let mut bytes = 0;
    for (hour, clients) in HOURS.into_iter().enumerate() {
        let mut set = JoinSet::new();
        for one in 0..clients {
            set.spawn(client(address, 10_000 * hour as u64 + 100 * one));
        }
        while let Some(done) = set.join_next().await {
            bytes += done.unwrap()?;
        }
        tokio::time::sleep(REST / 7).await;
    }
    tokio::time::sleep(REST).await;
    server.abort();
    Ok(bytes)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let bytes = runtime.block_on(day()).unwrap();
    println!("{} sessions, {bytes} bytes", HOURS.iter().sum::<u64>());
}
