"""The demo: real flights past real MQTT clients, some of which do not keep up. ``make demo`` runs it."""
