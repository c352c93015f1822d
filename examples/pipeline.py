"""A pipeline of scikit-learn, with a choice of models and their own parameters, tuned by cross-validation."""

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import misspec as ms
from misspec.integrations.sklearn import MisspecSearchCV

X, X_test, y, y_test = train_test_split(*load_wine(return_X_y=True), test_size=0.5, random_state=0)
space = {
    "scale": [StandardScaler(), MinMaxScaler()],
    "model": [LogisticRegression(max_iter=5000), SVC()],
    "model__C": ms.Float(1e-3, 1e3, log=True),
    "model__gamma": ms.Float(1e-4, 1e1, log=True, when={"model": "SVC"}),
}
pipeline = Pipeline([("scale", StandardScaler()), ("model", SVC())])
search = MisspecSearchCV(pipeline, space, n_iter=15, cv=3, random_state=0).fit(X, y)
accuracy = search.score(X_test, y_test)
print(f"best of {len(search.cv_results_['params'])}: {search.best_params_}")
print(f"accuracy on the folds {search.best_score_:.3f}, in the test {accuracy:.3f}")
print(search.policy_.summary())
