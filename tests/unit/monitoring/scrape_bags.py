"""Databags of prometheus_scrape as anybody may write them: near to what is meant, and far from it."""

from __future__ import annotations

import json

from hypothesis import strategies as st

CA = "-----BEGIN CERTIFICATE-----\nCA\n-----END CERTIFICATE-----\n"
METADATA = {"model": "m", "model_uuid": "12ab", "application": "app", "unit": "app/0", "charm_name": "thing"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(max_size=30)
ODD = JSON | TEXT
KNOWN_JOB = st.fixed_dictionaries(
    {},
    optional={
        "job_name": ODD,
        "metrics_path": st.just("/x") | ODD,
        "scheme": st.sampled_from(["http", "HTTPS", "x"]) | ODD,
        "params": st.dictionaries(TEXT, st.lists(TEXT)) | ODD,
        "scrape_interval": st.sampled_from(["1m", "99999h"]) | ODD,
        "scrape_timeout": st.sampled_from(["0s", "5m", "10s"]) | ODD,
        "sample_limit": st.integers() | ODD,
        "static_configs": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "targets": st.lists(st.sampled_from(["*:1", "*", "h:1", "[::1]:2"]) | TEXT) | ODD,
                    "labels": st.dictionaries(st.sampled_from(["a", "__b", "instance", "job"]) | TEXT, ODD)
                    | ODD,
                },
            )
        )
        | ODD,
        "relabel_configs": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "source_labels": st.lists(TEXT) | ODD,
                    "regex": st.sampled_from(["(", "(.*)"]) | ODD,
                    "action": st.sampled_from(["drop", "replace", "hashmod"]) | ODD,
                    "target_label": st.sampled_from(["a", "__address__"]) | ODD,
                    "modulus": st.integers() | ODD,
                },
            )
        )
        | ODD,
        "tls_config": st.fixed_dictionaries(
            {}, optional={"ca_file": st.sampled_from([CA, "x"]) | ODD, "cert_file": ODD, "key_file": ODD}
        )
        | ODD,
        "basic_auth": st.fixed_dictionaries({}, optional={"username": ODD, "password": ODD}) | ODD,
        "authorization": st.fixed_dictionaries({}, optional={"type": ODD, "credentials": ODD}) | ODD,
    },
)
KNOWN_RULES = st.fixed_dictionaries(
    {
        "groups": st.lists(
            st.fixed_dictionaries(
                {"name": TEXT},
                optional={
                    "rules": st.lists(
                        st.fixed_dictionaries(
                            {"expr": st.sampled_from(["up", "up{%%juju_topology%%}", "up{"]) | ODD},
                            optional={
                                "alert": ODD,
                                "record": ODD,
                                "for": st.just("5m") | ODD,
                                "labels": ODD,
                                "annotations": st.dictionaries(TEXT, st.just("{{ $x }}") | TEXT) | ODD,
                            },
                        )
                        | ODD
                    )
                },
            )
            | ODD
        )
    }
)
BAGS = st.fixed_dictionaries(
    {},
    optional={
        "scrape_jobs": st.lists(KNOWN_JOB | JSON, max_size=4).map(json.dumps) | TEXT,
        "scrape_metadata": st.fixed_dictionaries(dict.fromkeys(METADATA, ODD)).map(json.dumps)
        | JSON.map(json.dumps)
        | TEXT,
        "alert_rules": KNOWN_RULES.map(json.dumps) | JSON.map(json.dumps) | TEXT,
    },
)
UNITS = st.dictionaries(
    st.sampled_from(["app/0", "app/1", "remote-12/3"]) | TEXT,
    st.dictionaries(
        st.sampled_from(
            [
                "prometheus_scrape_unit_address",
                "prometheus_scrape_unit_name",
                "prometheus_scrape_unit_path",
                "prometheus_scrape_host",
                "ingress-address",
            ]
        ),
        st.sampled_from(["10.0.0.1", "fd00::1", "[::1]", "host", "/path", "app/7"]) | TEXT,
    ),
    max_size=3,
)
