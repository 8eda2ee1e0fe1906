//! What servers and parallel programs do to an allocator: tasks that begin on one thread and end on another, buffers
//! that grow there, pools of threads that share one job. If these tests fail, such programs lose data or keep memory.
// SPDX-License-Identifier: MIT
use hakmem::{Hakmem, Stats};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: Hakmem = Hakmem;

const MIB: usize = 1 << 20;

/// The tests count what is live in the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn live() -> usize {
    Stats::now().get("live").unwrap() as usize
}

/// Sends back what it gets, length first.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let Ok(length) = stream.read_u32().await else { return Ok(()) };
        let mut body = Vec::new();
        (&mut stream).take(length.into()).read_to_end(&mut body).await?;
        body.reverse();
        stream.write_u32(length).await?;
        stream.write_all(&body).await?;
    }
}

async fn ask(address: std::net::SocketAddr, client: usize) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    let mut sent = 0;
    for request in 0..30 {
        let size = (client * 7919 + request * 104_729) % 40_000;
        let body: Vec<u8> = (0..size).map(|at| (at + client) as u8).collect();
        stream.write_u32(size as u32).await?;
        stream.write_all(&body).await?;
        let mut answer = vec![0; stream.read_u32().await? as usize];
        stream.read_exact(&mut answer).await?;
        answer.reverse();
        assert!(answer == body);
        sent += size;
    }
    Ok(sent)
}

#[test]
fn a_server_of_tasks_that_move_between_threads() {
    let _turn = TURN.lock();
    let day = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream));
                }
            });
            let clients: Vec<_> = (0..32).map(|client| tokio::spawn(ask(address, client))).collect();
            let mut sent = 0;
            for client in clients {
                sent += client.await.unwrap().unwrap();
            }
            sent
        })
    };
    let sent = day();
    let after_one = live();
    for _ in 0..3 {
        assert_eq!(day(), sent);
    }
    assert!(live() < after_one + MIB, "live grew from {after_one} to {}", live());
}

#[test]
fn a_job_that_a_pool_of_threads_shares() {
    let _turn = TURN.lock();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let job = || {
        pool.install(|| {
            let mut words: Vec<String> =
                (0..50_000u32).into_par_iter().map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
            words.par_sort();
            let counts = words
                .par_iter()
                .fold(BTreeMap::new, |mut counts: BTreeMap<String, usize>, word| {
                    *counts.entry(word[..3].to_string()).or_default() += word.len();
                    counts
                })
                .reduce(BTreeMap::new, |mut one, other| {
                    for (key, count) in other {
                        *one.entry(key).or_default() += count;
                    }
                    one
                });
            assert!(words.is_sorted());
            counts.values().sum::<usize>()
        })
    };
    assert_eq!(job(), 400_000);
    let after_one = live();
    for _ in 0..3 {
        assert_eq!(job(), 400_000);
    }
    assert!(live() < after_one + MIB, "live grew from {after_one} to {}", live());
}
