"""What happens to tables, connections, volumes and processes while a test looks on."""
