"""What Spark prints where keyrange cannot speak: it is not found, not there, or not the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Symptom:
    """Lines that Spark or Python print, with `...` for what differs; their cause, and what to do.

    `cause` and `remedy` are Markdown, each of whole sentences.
    """

    name: str
    printed: tuple[str, ...]
    cause: str
    remedy: str


SYMPTOMS: Final = (
    Symptom(
        "keyrange is not installed on the executors",
        ("ModuleNotFoundError: No module named 'keyrange'",),
        "The Python that runs tasks, or the one that plans the stream, has no keyrange. Both are "
        "the Python that the driver's environment names (`PYSPARK_DRIVER_PYTHON`, else "
        "`PYSPARK_PYTHON`), by that path on the host that runs them. Spark does not pass files of "
        "`--py-files` to the process that plans a stream.",
        "Install keyrange into that Python on every host, or in the image. To see what tasks have, "
        "run `spark.sparkContext.range(1).map(lambda _: "
        '__import__("keyrange").__version__).collect()`.',
    ),
    Symptom(
        "A package is missing on the executors",
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        ),
        "The Python of the tasks is another one than that in which keyrange was installed with "
        "what it needs. The missing package is named in the executor's log (stderr), above Spark's "
        "own message. Without such a line the process was killed, for example for its memory.",
        "Set the variable `PYSPARK_PYTHON` to the Python that has keyrange: `keyrange doctor` in "
        "that Python lists its packages.",
    ),
    Symptom(
        "Spark does not find the source",
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: keyrange. Make sure the "
            "provider name is correct and the package is properly registered and compatible with "
            "your Spark version.",
        ),
        "Spark looks for Python sources in packages whose names begin with `pyspark_`, once. It "
        "finds none of them if keyrange was installed after the session began, if another such "
        "package fails to import, or if it looks in another Python: it takes the one that the "
        "variable `PYSPARK_DRIVER_PYTHON` or `PYSPARK_PYTHON` names where the driver's JVM starts, "
        "else `python3`, and not `spark.pyspark.python`.",
        "Submit with `PYSPARK_PYTHON` set to the Python that has keyrange, or call "
        "`keyrange.register(spark)`. `keyrange doctor` says whether the lookup finds it.",
    ),
    Symptom(
        "The jar of Delta is missing",
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider "
            "name is correct and the package is properly registered and compatible with your Spark "
            "version.",
            "java.lang.ClassNotFoundException: io.delta.sql.DeltaSparkSessionExtension",
            "Cannot find catalog plugin class for catalog 'spark_catalog': "
            "org.apache.spark.sql.delta.catalog.DeltaCatalog.",
        ),
        "`conf/spark-defaults.conf` names Delta's classes, and the session was started without its "
        "jar. keyrange itself needs no jars.",
        "Start the session with `--packages io.delta:delta-spark_4.2_2.13:4.4.0`, or with the jars "
        "in `spark.jars`. A session that runs takes no jars of Delta any more.",
    ),
    Symptom(
        "Java is missing, or too old",
        (
            "JAVA_HOME is not set",
            ".../bin/java: No such file or directory",
            "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been "
            "compiled by a more recent version of the Java Runtime (class file version 61.0), ...",
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
        ),
        "spark-submit and pyspark start the Java of `JAVA_HOME`, else the `java` on `PATH`. There "
        "is none, `JAVA_HOME` names a directory without one, or it is older than Java 17. "
        "The last line is pyspark's, in a program that was started without spark-submit; one of "
        "the others stands above it. No query was started.",
        "Install Java 17 or newer on every host, and set `JAVA_HOME` to its directory, the one "
        "that holds `bin/java`. `keyrange doctor` in the same environment says whether it runs.",
    ),
    Symptom(
        "The versions of pyspark differ",
        (
            "ModuleNotFoundError: No module named 'pyspark.sql.streaming.datasource'",
            "java.io.InvalidClassException: org.apache.spark...; local class incompatible: stream "
            "classdesc serialVersionUID = ..., local class serialVersionUID = ...",
            "TypeError: 'JavaPackage' object is not callable",
        ),
        "The driver's pyspark is of another version than the Spark of the executors, or than the "
        "jars of `SPARK_HOME`. keyrange needs Spark 4.2 in both: the first line is of an older "
        "pyspark.",
        "Compare `pyspark.__version__` in the driver's Python with `spark.version`, and with the "
        "version that the cluster shows. Install the cluster's version, and unset a `SPARK_HOME` "
        "that leads elsewhere.",
    ),
    Symptom(
        "The versions of Python differ",
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
        ),
        "The Python of the tasks and that of the driver are of different minor versions.",
        "Set `PYSPARK_PYTHON` (tasks) and `PYSPARK_DRIVER_PYTHON` (driver) to Pythons of one minor "
        "version, 3.11 or newer, with keyrange in both.",
    ),
    Symptom(
        "The path of a socket is too long",
        ("OSError: AF_UNIX path too long",),
        "With `spark.python.unix.domain.socket.enabled` Spark makes a socket below the JVM's "
        "`java.io.tmpdir`. In YARN's containers that path is longer than a socket's may be.",
        "Set `spark.python.unix.domain.socket.dir` to a short path that every host has, such as "
        "`/tmp`, as `conf/spark-defaults.conf` does.",
    ),
    Symptom(
        "A Python process is not there in time",
        ("org.apache.spark.SparkException: Python worker failed to connect back.",),
        "Spark starts a Python process on the driver's host that plans a stream, and gives it ten "
        "seconds. The host is busy, or its Python comes from a slow disk. Tasks have that limit "
        "only with `spark.python.use.daemon=false`.",
        "Start the query again. If it comes again, run `time $PYSPARK_PYTHON -c 'import pyspark'` "
        "on that host: it has to take much less than ten seconds. Give the driver more CPU, or "
        "start fewer queries at a time.",
    ),
    Symptom(
        "A DataFrame is written with keyrange",
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "keyrange" cannot be written in '
            'the "ErrorIfExists" mode. Please use either the "Append" or "Overwrite" mode instead.',
        ),
        'format("keyrange") only reads. With another mode it says so itself: '
        "[READ_ONLY_SOURCE](#read_only_source).",
        "Write to Kafka with `keyrange.topic_writer` in `foreachBatch`, or `into_topic` of a job.",
    ),
)
