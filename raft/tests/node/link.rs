//! A stretch of network before a node's peer port that a test can cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards every connection from one loopback port to another.
pub(crate) struct Link {
    address: SocketAddr,
    target: SocketAddr,
    /// Counts cuts; connections end when it changes.
    cuts: watch::Sender<u64>,
    forwarder: Option<JoinHandle<()>>,
}

impl Link {
    pub(crate) async fn open(address: SocketAddr, target: SocketAddr) -> Self {
        let mut link = Self {
            address,
            target,
            cuts: watch::Sender::new(0),
            forwarder: None,
        };
        link.accept().await;
        link
    }

    /// Listens again after [`refuse`](Self::refuse).
    pub(crate) async fn accept(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.forwarder = Some(tokio::spawn(forward(
            listener,
            self.target,
            self.cuts.subscribe(),
        )));
    }

    /// Refuses connections from now on; those that are open stay.
    pub(crate) async fn refuse(&mut self) {
        if let Some(forwarder) = self.forwarder.take() {
            forwarder.abort();
            // The listener is closed when the task is gone.
            let _ = forwarder.await;
        }
    }

    /// Ends every open connection.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn forward(listener: TcpListener, target: SocketAddr, cuts: watch::Receiver<u64>) {
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut cuts = cuts.clone();
        tokio::spawn(async move {
            cuts.mark_unchanged();
            let Ok(mut far) = TcpStream::connect(target).await else {
                return;
            };
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}
