"""What a nest costs on a machine of queues, in closed form."""
