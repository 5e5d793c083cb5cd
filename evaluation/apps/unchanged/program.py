#!/usr/bin/env python3
"""Programs that people run, unchanged, for `farheap-bench run`: each works on more data than it is given memory.

    program.py NAME [--quick]     pandas, polars, tpch, kmeans, sort

Prints one JSON object: `seconds`, the time of its work without start-up, and `checksum`, which depends on the data
alone, so that runs in different surroundings can be compared. Nothing in here knows about Farheap.
"""

import argparse
import hashlib
import json
import time


def digest(*values):
    """Of integers, strings, and floats that are rounded well above their last bit."""
    text = "\n".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_pandas(quick):
    """Derives, groups, joins and sorts a table of events."""
    import numpy
    import pandas

    rows = 400_000 if quick else 3_000_000
    random = numpy.random.default_rng(1)
    events = pandas.DataFrame({"person": random.integers(0, rows // 20, rows), "kind": random.integers(0, 300, rows),
                               "amount": random.integers(0, 1 << 20, rows), "when": random.permutation(rows)})
    people = pandas.DataFrame({"person": numpy.arange(rows // 20), "town": numpy.arange(rows // 20) % 211})
    events["share"] = events.amount * 7 % 1009
    joined = events.merge(people, on="person")
    by_town = joined.groupby(["town", "kind"])[["amount", "share"]].sum()
    ordered = joined.sort_values(["when"])
    running = ordered.amount.cumsum()
    return digest(int(by_town.amount.max()), int(by_town.share.sum()), int(running.iloc[rows // 3]), len(joined))


def run_polars(quick):
    """Groups, sorts and joins with a vectorised query engine and its own allocator."""
    import numpy
    import polars

    rows = 500_000 if quick else 6_000_000
    random = numpy.random.default_rng(2)
    left = polars.DataFrame({"key": random.integers(0, rows // 4, rows), "value": random.integers(0, 1 << 30, rows)})
    right = polars.DataFrame({"key": numpy.arange(rows // 4), "weight": random.integers(0, 1000, rows // 4)})
    groups = left.group_by("key").agg(polars.col("value").sum(), polars.len().alias("count"))
    ordered = left.sort(["value", "key"])
    joined = left.join(right, on="key", how="inner")
    weighted = joined.select((polars.col("value") % 1000 * polars.col("weight")).sum()).item()
    largest = groups.select(polars.col("value").max()).item()
    return digest(largest, int(ordered["key"][rows // 2]), weighted, joined.height)


# Tables and queries after those of TPC-H (its queries 1, 3, 5, 6, 10, 14 and 18), on data that DuckDB generates.
TPCH_TABLES = (
    """CREATE TABLE customer AS SELECT i AS c_key, i % 25 AS c_nation, hash(i) % 5 AS c_segment,
       'Customer#' || lpad(i::VARCHAR, 9, '0') AS c_name FROM range({orders} // 10) t(i)""",
    """CREATE TABLE orders AS SELECT i AS o_key, hash(i * 3) % ({orders} // 10) AS o_customer,
       DATE '1992-01-01' + (hash(i * 5) % 2400)::INTEGER AS o_date, hash(i * 7) % 5 AS o_priority,
       'order comment ' || hash(i * 11) % 100000 AS o_comment FROM range({orders}) t(i)""",
    """CREATE TABLE lineitem AS SELECT i // 4 AS l_order, hash(i * 13) % 20000 AS l_part,
       hash(i * 17) % 1000 AS l_supplier, 1 + hash(i * 19) % 50 AS l_quantity, 90000 + hash(i * 23) % 1000000 AS l_cents, hash(i * 29) % 11 AS l_discount,
       hash(i * 31) % 9 AS l_tax, hash(i * 37) % 3 AS l_flag, hash(i * 41) % 2 AS l_status,
       DATE '1992-01-01' + (hash(i // 4 * 5) % 2400)::INTEGER + (1 + hash(i * 43) % 120)::INTEGER AS l_shipped
       FROM range({orders} * 4) t(i)""",
)
TPCH_QUERIES = (
    """SELECT l_flag, l_status, sum(l_quantity), sum(l_cents), sum(l_cents * (100 - l_discount)), count(*) FROM lineitem
       WHERE l_shipped <= DATE '1998-09-02' GROUP BY ALL ORDER BY ALL""",
    """SELECT l_order, sum(l_cents * (100 - l_discount)) AS revenue, o_date FROM customer, orders, lineitem
       WHERE c_segment = 1 AND c_key = o_customer AND l_order = o_key AND o_date < DATE '1995-03-15'
       AND l_shipped > DATE '1995-03-15' GROUP BY ALL ORDER BY revenue DESC, l_order LIMIT 10""",
    """SELECT c_nation, sum(l_cents * (100 - l_discount)) FROM customer, orders, lineitem WHERE c_key = o_customer
       AND l_order = o_key AND l_supplier % 25 = c_nation AND o_date BETWEEN DATE '1994-01-01' AND DATE '1994-12-31'
       GROUP BY ALL ORDER BY ALL""",
    """SELECT sum(l_cents * l_discount) FROM lineitem WHERE l_shipped BETWEEN DATE '1994-01-01' AND DATE '1994-12-31'
       AND l_discount BETWEEN 5 AND 7 AND l_quantity < 24""",
    """SELECT c_key, c_name, sum(l_cents * (100 - l_discount)) AS revenue FROM customer, orders, lineitem
       WHERE c_key = o_customer AND l_order = o_key AND l_flag = 2 GROUP BY ALL
       ORDER BY revenue DESC, c_key LIMIT 20""",
    """SELECT sum(CASE WHEN l_part % 5 = 0 THEN l_cents ELSE 0 END), sum(l_cents) FROM lineitem
       WHERE l_shipped BETWEEN DATE '1995-09-01' AND DATE '1995-09-30'""",
    """SELECT o_customer, o_key, sum(l_quantity) AS total, max(o_comment) FROM orders, lineitem WHERE o_key = l_order
       GROUP BY ALL HAVING total > 180 ORDER BY total DESC, o_key LIMIT 100""",
)


def run_tpch(quick):
    """Seven queries over three tables in memory."""
    import duckdb

    orders = 150_000 if quick else 1_500_000
    connection = duckdb.connect(config={"threads": 2, "memory_limit": "16GB"})
    for table in TPCH_TABLES:
        connection.execute(table.format(orders=orders))
    return digest(*(connection.execute(query).fetchall() for _ in range(2) for query in TPCH_QUERIES))


def run_kmeans(quick):
    """Lloyd's algorithm of scikit-learn."""
    import numpy
    from sklearn.cluster import KMeans

    points = numpy.random.default_rng(3).random((200_000 if quick else 2_500_000, 16))
    points += numpy.arange(len(points))[:, None] % 8  # eight clusters, so that the result does not hang on the last bit
    found = KMeans(n_clusters=8, init=points[:8], n_init=1, max_iter=20, algorithm="lloyd").fit(points)
    return digest(*sorted(numpy.bincount(found.labels_).tolist()))


def run_sort(quick):
    """Sorts an array of random numbers, and finds the order of another."""
    import numpy

    count = 4_000_000 if quick else 40_000_000
    random = numpy.random.default_rng(4)
    values = random.integers(0, 1 << 62, count)
    values.sort()
    order = numpy.argsort(random.integers(0, 1 << 62, count // 4), kind="stable")
    return digest(int(values[count // 2]), int(order[count // 8]))


PROGRAMS = {"pandas": run_pandas, "polars": run_polars, "tpch": run_tpch, "kmeans": run_kmeans, "sort": run_sort}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--quick", action="store_true", help="less data")
    chosen = parser.parse_args()
    start = time.monotonic()
    checksum = PROGRAMS[chosen.name](chosen.quick)
    print(json.dumps({"seconds": time.monotonic() - start, "checksum": checksum}))


if __name__ == "__main__":
    main()
