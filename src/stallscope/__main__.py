"""`python -m stallscope` is the `stallscope` command."""

from stallscope.cli.main import main

if __name__ == "__main__":
    main()
