"""Who is next: lines of campaigns by need, and what projects and people have used."""
