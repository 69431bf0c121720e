"""What other tools' engine caches hold, read without their code and without unpickling anything."""
