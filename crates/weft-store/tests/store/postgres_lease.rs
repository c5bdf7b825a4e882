//! The row that says who holds a volume in PostgreSQL: it may be gone, or damaged.

use crate::compare::state;
use crate::sample;
use std::sync::Arc;
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::Cluster;

fn open(address: &Address) -> Result<Arc<PostgresStore>> {
    postgres::open(address, OpenOptions::default())
}

fn check(address: &Address, repair: Repair) -> Vec<Finding> {
    postgres::check(address, CheckOptions { repair, read_data: true }, &mut |_| {}).expect("checked")
}

#[test]
fn a_lease_that_is_gone_is_told_and_made_anew_above_all_its_holders() {
    let cluster = Cluster::shared();
    for damage in ["DELETE FROM lease", "UPDATE lease SET epoch = -3", "UPDATE lease SET epoch = 9223372036854775807"] {
        let address = cluster.address();
        postgres::create(&address, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
        let schema = address.schema().to_owned();
        // Twice, as no trace is left of the epoch that was made first.
        let mut holders = Vec::new();
        for _ in 0..2 {
            let holder = open(&address).expect("opened");
            let header = holder.header().expect("readable");
            let batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
            holders.push((holder, batch));
            cluster.run(&format!("SET search_path TO {schema}; {damage}"));
            let refused = open(&address).map(drop).expect_err("nobody can hold it");
            assert_eq!(refused.kind(), ErrorKind::Corrupt);
            assert!(refused.to_string().contains("'weft check --repair' makes it anew"), "{refused}");
            let told = |found: &[Finding], outcome| {
                let is_told =
                    |finding: &Finding| finding.what.contains("the row of the lease") && finding.outcome == outcome;
                found.iter().any(is_told)
            };
            let found = check(&address, Repair::No);
            assert!(told(&found, Outcome::Damaged), "{found:?}");
            let found = check(&address, Repair::Yes);
            assert!(told(&found, Outcome::Repaired), "{found:?}");
            let left = check(&address, Repair::No);
            assert!(left.iter().all(|finding| finding.outcome == Outcome::Note), "{left:?}");
        }
        let last = open(&address).expect("opened");
        for (holder, batch) in &holders {
            holder.apply(batch, Durability::Durable).expect_err("it holds nothing any more");
        }
        sample::fill(&*last);
        state(&*last).expect("readable");
        drop((holders, last));
        postgres::remove(&address).expect("removed");
    }
}
