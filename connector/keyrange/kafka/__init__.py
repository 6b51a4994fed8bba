"""The cluster: connections, requests to brokers, groups, quotas."""
