"""Lifecycle rules for the bucket of a remote: what ``trtcache init URL`` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteUrl

AGE_DAYS = 90
CLAIM_DAYS = 1
"""A claim is valid for a minute after its builder has last renewed it; providers count in whole days."""


def _age_days(url: RemoteUrl) -> int:
    # Entries in use are uploaded again at half of their lifetime, so the rules may not delete them before its end.
    return max(AGE_DAYS, math.ceil(url.lifetime_s / 86400))


def lifecycle_rules(url: RemoteUrl) -> dict[str, Any] | None:
    """Return the provider's document: entries expire by age, claims and parts of interrupted uploads after a day.

    Return None for a web folder, which has no such rules.
    """
    begin = f"{url.prefix}/" if url.prefix else ""
    entries, claims = f"{begin}entries/", f"{begin}claims/"
    if url.scheme == "s3":
        return {
            "Rules": [
                {
                    "ID": f"trtcache {entries}",
                    "Status": "Enabled",
                    "Filter": {"Prefix": entries},
                    "Expiration": {"Days": _age_days(url)},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                },
                {
                    "ID": f"trtcache {claims}",
                    "Status": "Enabled",
                    "Filter": {"Prefix": claims},
                    "Expiration": {"Days": CLAIM_DAYS},
                },
            ]
        }
    if url.scheme == "gs":
        return {
            "rule": [
                _google_rule("Delete", _age_days(url), entries),
                _google_rule("Delete", CLAIM_DAYS, claims),
                _google_rule("AbortIncompleteMultipartUpload", 1, entries),
            ]
        }
    if url.scheme == "az":
        # Azure removes parts of interrupted uploads itself after a week.
        return {
            "rules": [
                _azure_rule("trtcache-entries", _age_days(url), f"{url.place}/{entries}"),
                _azure_rule("trtcache-claims", CLAIM_DAYS, f"{url.place}/{claims}"),
            ]
        }
    return None


def _google_rule(action: str, age_days: int, prefix: str) -> dict[str, Any]:
    return {"action": {"type": action}, "condition": {"age": age_days, "matchesPrefix": [prefix]}}


def _azure_rule(name: str, age_days: int, prefix: str) -> dict[str, Any]:
    delete = {"delete": {"daysAfterModificationGreaterThan": age_days}}
    filters = {"blobTypes": ["blockBlob"], "prefixMatch": [prefix]}
    definition = {"actions": {"baseBlob": delete}, "filters": filters}
    return {"enabled": True, "name": name, "type": "Lifecycle", "definition": definition}


def how_to_apply(url: RemoteUrl) -> str:
    """Return the command that sets the rules, from a file ``lifecycle.json``."""
    if url.scheme == "s3":
        endpoint = f" --endpoint-url {url.endpoint}" if url.endpoint else ""
        begin = f"aws{endpoint} s3api put-bucket-lifecycle-configuration --bucket {url.place}"
        return f"{begin} --lifecycle-configuration file://lifecycle.json"
    if url.scheme == "gs":
        return f"gcloud storage buckets update gs://{url.place} --lifecycle-file=lifecycle.json"
    if url.scheme == "az":
        account = f" --account-name {url.account}" if url.account else " --account-name ACCOUNT"
        return f"az storage account management-policy create{account} -g GROUP --policy @lifecycle.json"
    return f"find FOLDER/entries -name '*.trtc' -mtime +{_age_days(url)} -delete"
