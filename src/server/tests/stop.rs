//! The planned stop of a server.

use super::*;

#[tokio::test]
async fn a_stop_closes_every_connection_and_the_listener() {
    let server = serve().await;
    let address = server.local_addr();
    let mut idle = Peer::enter(&server).await;
    idle.settle().await;
    let mut holder = Peer::enter(&server).await;
    holder.acquire("job").await;
    let mut waiter = Peer::enter(&server).await;
    waiter.send(acquire("job", 200, 30, 1)).await;
    waiter.settle().await;
    let mut early = Peer::dial(&server).await;
    early.challenge().await;

    server.stop().await;
    idle.expect_last("").await;
    waiter.expect_last("Enot_active\n").await;
    early.expect_last("").await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_cannot_hold_up_a_stop() {
    let house = House::single();
    let mut deaf = house.enter(NARROW).await;
    for probe in 0..200 {
        deaf.send(release("job", probe)).await;
    }
    run_dry().await;
    let start = Instant::now();
    let House {
        gate,
        front,
        mut driver,
        stopping,
    } = house;
    stopping.send_replace(true);
    drop(front);
    driver.quiesce().await;
    driver.stop();
    driver.ended().await;
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    drop(gate);
}
