"""What tests of schema registries share."""
