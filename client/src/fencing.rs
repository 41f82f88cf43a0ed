//! What a store must check so that a lock's holder can be late without harm.
//!
//! A lock service can promise that two clients never hold a key at once. It can't stop a holder that
//! was paused, by a debugger, a full disk, a virtual machine that moved, from going on after its
//! lease with a write that it had decided on before. Only what receives the write can: it remembers
//! the greatest token that it has seen and refuses less. Tokens make that possible, since each
//! grant's token is greater than every one before it, whatever crashed in between.
//!
//! The check and the write must be one step, and so must the check and a *read* on which a later
//! write rests; else the late write slips in between them. A token may be used for many writes, so
//! an equal one passes. Keep [`Ticket::remaining`](crate::Ticket::remaining) in view besides: it
//! spares the work that would be refused.
//!
//! The example `fencing` plays it through with a holder that is late.
//!
//! # PostgreSQL
//!
//! One row for each key, taken at the beginning of the transaction that does the work:
//!
//! ```sql
//! CREATE TABLE fence (key text PRIMARY KEY, token bigint NOT NULL);
//!
//! BEGIN;
//! INSERT INTO fence (key, token) VALUES ('order-1', 42)
//! ON CONFLICT (key) DO UPDATE SET token = excluded.token
//! WHERE fence.token <= excluded.token;
//! -- "INSERT 0 0": a later holder was here. ROLLBACK, and stop.
//! -- "INSERT 0 1": read and write what the lock protects, then
//! COMMIT;
//! ```
//!
//! The statement locks the row until the transaction ends, also when it only compares, so an earlier
//! holder's transaction is either over before or sees the new token. If all that the lock protects
//! is one row, the token can live in it: `UPDATE account SET balance = 7, fence = 42 WHERE id = 1 AND
//! fence <= 42`, and no updated row means that a later holder was here.
//!
//! # MySQL
//!
//! The same with InnoDB, where the count of rows does not tell whether a value changed:
//!
//! ```sql
//! CREATE TABLE fence (name varchar(128) PRIMARY KEY, token bigint unsigned NOT NULL);
//!
//! START TRANSACTION;
//! INSERT INTO fence (name, token) VALUES ('order-1', 42)
//! ON DUPLICATE KEY UPDATE token = GREATEST(token, 42);
//! SELECT token = 42 FROM fence WHERE name = 'order-1' FOR UPDATE;
//! -- 0: a later holder was here. ROLLBACK, and stop.
//! -- 1: read and write what the lock protects, then
//! COMMIT;
//! ```
//!
//! Use a binary collation for the name if keys differ in more than their letters' case.
//!
//! # An object store
//!
//! There is no transaction, but a write can be made conditional on what it replaces (`If-Match` with
//! the entity tag; in Google's store `x-goog-if-generation-match`). Keep the token in the object's
//! metadata:
//!
//! 1. Read the object, its entity tag and the token in its metadata. A greater token than ours: a
//!    later holder was here, stop.
//! 2. Write the new object with our token in its metadata, on condition that the entity tag is still
//!    the one that was read (`If-None-Match: *` if there was no object).
//! 3. Refused (412): somebody wrote in between, perhaps an earlier holder whose write was on its
//!    way. Begin again with step 1: what was read is not true any more.
//!
//! The condition makes the check and the write one step. A plain write, or a check before it, does
//! not.
