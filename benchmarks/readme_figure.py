"""Draw the figure of the README, an explanation and a comparison of methods: `python -m benchmarks.readme_figure`."""

import io
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier

import shapeline

TARGET = Path(__file__).parents[1] / "docs/images/explanation.png"
METHODS = ["gp_shapley", "kernel_shap", "sample_shapley", "occlusion"]


def render(figure) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return Image.open(buffer).convert("RGB")


def main() -> None:
    X, y = load_breast_cancer(as_frame=True, return_X_y=True)
    model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    explanation = shapeline.explain(model, X[:10], background=X)
    comparison = shapeline.compare(model, X[:60], METHODS, background=X)
    print(explanation[3], comparison, sep="\n\n")
    images = [render(explanation[3].plot()), render(comparison.plot())]
    page = Image.new("RGB", (max(image.width for image in images), sum(image.height for image in images)), "white")
    place = 0
    for image in images:
        page.paste(image, (0, place))
        place += image.height
    page.quantize(128).save(TARGET, optimize=True)


if __name__ == "__main__":
    main()
