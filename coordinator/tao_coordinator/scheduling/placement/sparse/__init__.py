"""The ladder for many sessions and backends: only pairs with credit are looked at one by one."""
