//! How fast a server hands out the blocks of a volume's newest file to one connection that always
//! has some of them asked for, in MB/s: `pipelined_reads 'host=DIRECTORY user=NAME dbname=NAME'
//! SCHEMA [ASKED_FOR]`. What reads of a mounted volume are compared with.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::time::Instant;
use tokio_postgres::{Error, NoTls};

const KEYS: &str = "SELECT owner, id FROM blocks WHERE owner = (SELECT max(owner) FROM blocks) ORDER BY id";

async fn measure(config: &str, schema: &str, asked_for: usize) -> Result<f64, Error> {
    let (client, connection) = tokio_postgres::connect(config, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path TO {schema}")).await?;
    let keys = client.query(KEYS, &[]).await?;
    let keys = keys.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))).collect::<Vec<_>>();
    let statement = client.prepare("SELECT bytes FROM blocks WHERE owner = $1 AND id = $2").await?;
    let began = Instant::now();
    let (client, statement) = (&client, &statement);
    let ask = async |(owner, id): &(i64, i64)| {
        client.query_one(statement, &[owner, id]).await.map(|row| row.get::<_, &[u8]>(0).len())
    };
    let read = stream::iter(&keys).map(ask).buffered(asked_for).try_fold(0, async |sum, len| Ok(sum + len)).await?;
    Ok(read as f64 / 1e6 / began.elapsed().as_secs_f64())
}

fn main() {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let (Some(config), Some(schema)) = (arguments.first(), arguments.get(1)) else {
        eprintln!("pipelined_reads 'host=DIRECTORY user=NAME dbname=NAME' SCHEMA [ASKED_FOR]");
        std::process::exit(2);
    };
    let asked_for = arguments.get(2).and_then(|number| number.parse().ok()).unwrap_or(64);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(measure(config, schema, asked_for)) {
        Ok(rate) => println!("{rate:.0}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
