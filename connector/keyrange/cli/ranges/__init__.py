"""`keyrange ranges`."""
