"""Random tables, questions about them, and pandas' answers: the folder that frame_queries reads, and answers.json.

    dataframe_reference.py FOLDER SEED ROWS
    dataframe_reference.py FOLDER SEED CASE

ROWS random rows, or those of a case of EDGES. Differences between pandas and far::dataframe that are meant
(docs/dataframe.md): null equals nothing in a join; a group without values has no sum; a sum that int64 does not have is
refused, where pandas' is another number; and a quantile that is one of the numbers, or lies between equal ones, is that
one, where NumPy's is NaN beside infinite ones."""

import json
import math
import pathlib
import random
import sys

import numpy
import pandas

DTYPES = {"int64": "Int64", "float64": "float64", "boolean": "boolean", "time": "datetime64[s]", "text": "object"}
LEFT = [("number", "int64"), ("real", "float64"), ("flag", "boolean"), ("at", "time"), ("text", "text"),
        ("id", "int64"), ("never", "float64")]
RIGHT = [("number", "int64"), ("real", "float64"), ("flag", "boolean"), ("at", "time"), ("text", "text")]
TEXTS = ["yes", "no", "", "a,b", 'a "quoted" one', "two\nlines", "z\u00fcrich", "Z", "nan", "\U0001f600", " blank"]
AGGREGATES = ["count", "sum", "mean", "min", "max", "median"]
YEAR_2016_S = 1_451_606_400
MOST = 2 ** 63 - 1
EDGES = {
    "nulls": {},
    "zeros": {"number": [0, -0, 1, 0, None, 0], "real": [0.0, -0.0, None, -0.0, 0.0, 1.0],
              "flag": [True, False, None, True, True, False], "at": [0, 0, None, -1, 1, 0],
              "text": ["0", "-0", None, "0", "", ""]},
    "extremes": {"number": [MOST, 1 - MOST, None, -MOST, 2 ** 53 + 1, 0],
                 "real": [math.inf, None, 5e-324, -5e-324, 1.7976931348623157e308, math.inf],
                 "at": [-(1 << 35), 1 << 37, None, 0, 2 ** 31, -2 ** 31 - 1]},
    "overflow": {"number": [MOST, MOST, 1, None, MOST, 5], "real": [-math.inf, -math.inf, 0.0, -0.0, None, -math.inf],
                 "flag": [True, True, False, False, None, None]},
}


def value(column, kind, row, random):
    if column == "id":
        return row
    if column == "never" or random.random() < 0.1:
        return None
    if kind == "int64":
        return random.choice([random.randrange(-15, 15), random.randrange(-15, 15), 2 ** 40 + row % 7])
    if kind == "float64":
        # Sixteenths: their sums are exact in every order.
        return random.choice([random.randrange(-4096, 4096) / 16, random.randrange(-8, 8) / 2, 0.0, -0.0])
    if kind == "boolean":
        return random.random() < 0.3
    if kind == "time":
        return YEAR_2016_S + random.choice([random.randrange(366 * 86_400), random.randrange(5) * 86_400, -1 << 33])
    return random.choice(TEXTS)


def edges_of(case, columns):
    """The columns of a case, as long as the longest, with nulls behind and those that it does not name; but the ids."""
    rows = max(map(len, EDGES[case].values()), default=4)
    values = {column: EDGES[case].get(column, []) for column, _ in columns}
    values = {column: some + [None] * (rows - len(some)) for column, some in values.items()}
    return values | ({"id": list(range(rows))} if "id" in values else {})


def make(columns, rows, random):
    if isinstance(rows, str):
        return edges_of(rows, columns)
    return {column: [value(column, kind, row, random) for row in range(rows)] for column, kind in columns}


def field(one, kind):
    if one is None:
        return ""
    if kind == "time":
        return str(pandas.Timestamp(one, unit="s")).replace("NaT", "")
    if kind == "boolean":
        return "true" if one else "0"
    return '"' + one.replace('"', '""') + '"' if kind == "text" else repr(one)


def write_csv(path, columns, values, random):
    rows = zip(*(values[column] for column, _ in columns))
    lines = [",".join(column for column, _ in columns)]
    lines += [",".join(field(one, kind) for one, (_, kind) in zip(row, columns)) for row in rows]
    end = random.choice(["\n", "\r\n"])
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")


def frame_of(columns, values):
    def series(column, kind):
        if kind == "time":
            return pandas.to_datetime(pandas.Series(values[column], dtype="Int64"), unit="s").astype(DTYPES[kind])
        return pandas.Series(values[column], dtype=DTYPES[kind])

    frame = pandas.DataFrame({column: series(column, kind) for column, kind in columns})
    frame["quarter"] = frame["number"].astype("float64") / 4
    return frame


def cell(one):
    """A value as JSON has it."""
    if one is None or one is pandas.NaT or one is pandas.NA:
        return None
    if isinstance(one, pandas.Timestamp):
        return int(one.timestamp())
    one = one.item() if hasattr(one, "item") else one
    if isinstance(one, float):
        return None if math.isnan(one) else ("inf" if one > 0 else "-inf") if math.isinf(one) else one
    return one


def cells(series):
    return [cell(one) for one in series]


def comparable(one, kind):
    return pandas.Timestamp(one, unit="s") if kind == "time" else one


def between(series, question, kind):
    inside = series.notna()
    if question["lowest"] is not None:
        inside &= (series >= comparable(question["lowest"], kind)).fillna(False).astype(bool)
    if question["highest"] is not None:
        inside &= (series <= comparable(question["highest"], kind)).fillna(False).astype(bool)
    return inside


def exact_sum(series):
    """That of integers, of which pandas' is another beyond int64. None: there are none."""
    values = [int(one) for one in series.dropna()]
    if not values:
        return None
    return sum(values) if -MOST - 1 <= sum(values) <= MOST else "overflow"


def quantile(numbers, fraction):
    """NumPy's own, because pandas takes percents, which are rounded."""
    if len(numbers) == 0:
        return None
    rank = fraction * (len(numbers) - 1)
    numbers = numpy.sort(numbers.to_numpy("float64"))
    low, high = (numbers[at] for at in (math.floor(rank), math.ceil(rank)))
    if low == high:
        return cell(low)
    if math.isinf(high - low) and math.isfinite(low) and math.isfinite(high):
        return cell(low * (1 - rank % 1) + high * (rank % 1))
    with numpy.errstate(invalid="ignore"):
        return cell(numpy.quantile(numbers, fraction))


def describe(series, question, kind):
    values = series.dropna()
    counts = values.value_counts().sort_index()
    said = {"count": len(values), "nulls": int(series.isna().sum()), "distinct": [cell(one) for one in counts.index],
            "counts": [[cell(one), int(times)] for one, times in counts.items()]}
    if kind == "text":
        return said
    inside = between(series, question, kind)
    outermost = question["outermost"]
    said |= {"largest": cells(values.sort_values(ascending=False).head(outermost)),
             "smallest": cells(values.sort_values().head(outermost)),
             "min": cell(values.min()), "max": cell(values.max()), "count_between": int(inside.sum()),
             "rows_between": [int(row) for row in inside[inside].index]}
    if kind == "time":
        return said
    numbers = values.astype("Int64") if kind == "boolean" else values
    total = cell(numbers.sum(min_count=1)) if kind == "float64" else exact_sum(numbers)
    return said | {"sum": total, "mean": cell(numbers.mean()), "median": cell(numbers.median()),
                   "quantile": quantile(numbers, question["fraction"])}


def aggregate(group, what):
    if what in ("count", "min", "max"):
        return group.agg(what)
    return group.sum(min_count=1) if what == "sum" else group.agg(what)


def group(frame, step):
    grouped = frame.groupby(step["keys"], dropna=True, sort=True, observed=True)
    whole = {column for column, what in step["aggregates"] if what == "sum" and column in ("number", "id")}
    if any(exact_sum(one) == "overflow" for column in whole for _, one in grouped[column]):
        return "overflow"
    columns = {f"{column}_{what}": aggregate(grouped[column], what) for column, what in step["aggregates"]}
    keys = grouped.size().reset_index()[step["keys"]]
    return pandas.concat([keys] + [one.reset_index(drop=True).rename(name) for name, one in columns.items()], axis=1)


def apply(frame, step, tables, kinds):
    what = step["do"]
    if what == "sort":
        return frame.sort_values(step["column"], ascending=not step["descending"], kind="stable")
    if what in ("largest", "smallest"):
        values = frame.dropna(subset=[step["column"]])
        return values.sort_values(step["column"], ascending=what == "smallest", kind="stable").head(step["count"])
    if what == "filter":
        return frame[between(frame[step["column"]], step, kinds[step["column"]])]
    if what == "equal":
        series = frame[step["column"]]
        same = series.notna() & (series == comparable(step["value"], kinds[step["column"]])).fillna(False).astype(bool)
        return frame[same & (step["value"] is not None)]
    if what == "where":
        return frame[(frame["real"] < frame["number"].astype("float64")).fillna(False).astype(bool)]
    if what == "join":
        right = tables["right"].dropna(subset=[step["column"]])
        return frame.merge(right, on=step["column"], how="left" if step["left"] else "inner", suffixes=("", "_right"))
    return group(frame, step)


def bounds(kind, random):
    def bound():
        if random.random() < 0.2:
            return None
        if kind == "time":
            return YEAR_2016_S + random.randrange(-86_400, 366 * 86_400)
        if kind == "boolean":
            return random.random() < 0.5
        return random.randrange(-20, 20) if kind == "int64" else random.randrange(-300, 300) / 4
    return {"lowest": bound(), "highest": bound()}


def step_of(random):
    column, kind = random.choice([one for one in LEFT if one[0] != "id"])
    what = random.choice(["sort", "sort", "filter", "equal", "where", "largest", "smallest"])
    if what in ("largest", "smallest") and kind != "text":
        return {"do": what, "column": column, "count": random.choice([0, 1, 3, 40, 1000, 10 ** 9])}
    if what == "filter" and kind != "text":
        return {"do": what, "column": column, **bounds(kind, random)}
    if what == "equal":
        return {"do": what, "column": column, "value": value(column, kind, 0, random)}
    if what == "where":
        return {"do": what}
    return {"do": "sort", "column": column, "descending": random.random() < 0.5}


def last_step_of(random):
    if random.random() < 0.4:
        return {"do": "join", "right": "right", "column": random.choice(["number", "real", "flag", "at", "text"]),
                "left": random.random() < 0.5}
    keys = random.sample(["number", "real", "flag", "at", "text", "never"], random.choice([1, 1, 2, 3, 4]))
    kinds = dict(LEFT, quarter="float64")
    allowed = {"text": ["count"], "time": ["count", "min", "max"]}
    wanted = [(column, random.choice(allowed.get(kinds[column], AGGREGATES))) for column in random.sample(list(kinds), 4)]
    return {"do": "group", "keys": keys, "aggregates": wanted}


def questions_of(random):
    asked = [{"table": "left", "column": column, "fraction": random.choice([0, 1, 0.25, 0.9, random.random()]),
              "outermost": random.choice([0, 1, 5, 100, 3000, 10 ** 9]),
              **bounds(kind, random)} for column, kind in LEFT]
    for _ in range(30):
        steps = [step_of(random) for _ in range(random.randrange(3))] + [last_step_of(random)]
        asked.append({"table": "left", "steps": steps[random.randrange(2):] if len(steps) > 1 else steps})
    asked += [{"table": "left", "steps": [step_of(random)]} for _ in range(10)]
    return asked


def answer(tables, question):
    kinds = dict(LEFT, quarter="float64")
    frame = tables[question["table"]]
    if "column" in question:
        return describe(frame[question["column"]], question, kinds[question["column"]])
    for step in question["steps"]:
        frame = apply(frame, step, tables, kinds)
        if isinstance(frame, str):
            return frame
    return [[column, cells(frame[column])] for column in frame.columns]


def main(folder, seed, rows):
    chosen = random.Random(seed)
    shapes = {"left": (LEFT, rows), "right": (RIGHT, rows if rows in EDGES else chosen.choice([0, 1, 20, 100]))}
    tables = {}
    for name, (columns, count) in shapes.items():
        values = make(columns, count, chosen)
        write_csv(folder / f"{name}.csv", columns, values, chosen)
        tables[name] = frame_of(columns, values)
    asked = questions_of(chosen)
    (folder / "questions.json").write_text(json.dumps(
        {"tables": {name: columns for name, (columns, _) in shapes.items()}, "questions": asked}))
    (folder / "answers.json").write_text(json.dumps([answer(tables, question) for question in asked]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if sys.argv[3] in EDGES else int(sys.argv[3]))
