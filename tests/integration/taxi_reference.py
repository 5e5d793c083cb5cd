"""The nine analyses of evaluation/apps/taxi by pandas: prints their results for a CSV file, in the form of `taxi --json`."""

import json
import sys

import numpy
import pandas


def distances_km(trips):
    places = ["pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude"]
    from_x, from_y, to_x, to_y = (numpy.radians(trips[place]) for place in places)
    chord = (numpy.sin((to_y - from_y) / 2) ** 2
             + numpy.cos(from_y) * numpy.cos(to_y) * numpy.sin((to_x - from_x) / 2) ** 2)
    return 2 * 6371 * numpy.arcsin(numpy.sqrt(chord))


def by_number(series):
    return {str(key): value for key, value in series.sort_index().to_dict().items()}


def analyse(trips):
    pickup = trips["pickup_datetime"]
    durations = (trips["dropoff_datetime"] - pickup).dt.total_seconds()
    stored = trips["store_and_fwd_flag"] == "Y"
    distances = distances_km(trips)
    return {
        "vendors": by_number(trips["vendor_id"].value_counts()),
        "passengers": {str(vendor): by_number(group.value_counts())
                       for vendor, group in trips.groupby("vendor_id")["passenger_count"]},
        "durations": {"shortest_s": int(durations.min()), "longest_s": int(durations.max()),
                      "mean_s": durations.mean()},
        "stored": {"trips": int(stored.sum()), "share": stored.mean()},
        "distances": {"longest_km": distances.max(), "mean_km": distances.mean(),
                      "beyond_100_km": int((distances > 100).sum())},
        "pickup_range": {"first": str(pickup.min()), "last": str(pickup.max())},
        "pickups": {"by_hour": by_number(pickup.dt.hour.value_counts()),
                    "by_day": by_number(pickup.dt.day.value_counts()),
                    "by_month": by_number(pickup.dt.month.value_counts())},
        "median_by_day": by_number(trips.groupby(pickup.dt.day)["trip_duration"].median()),
        "median_by_month": by_number(trips.groupby(pickup.dt.month)["trip_duration"].median()),
    }


if __name__ == "__main__":
    print(json.dumps(analyse(pandas.read_csv(sys.argv[1], parse_dates=["pickup_datetime", "dropoff_datetime"],
                                             float_precision="round_trip"))))
